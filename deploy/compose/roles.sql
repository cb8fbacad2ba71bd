-- The image runs this once, as postgres in database shop. shop owns its tables; cdc may only replicate.
CREATE ROLE shop LOGIN PASSWORD 'shop';
ALTER DATABASE shop OWNER TO shop;
CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc';
