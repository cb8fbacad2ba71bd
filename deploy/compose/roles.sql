-- Run once, by the image, as postgres in database shop. shop owns its tables; cdc may replicate and nothing else.
CREATE ROLE shop LOGIN PASSWORD 'shop';
ALTER DATABASE shop OWNER TO shop;
CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc';
