-- What the servers were asked to do to make the recorded messages. Every
-- statement ends a line with a semicolon and is a transaction unless it is
-- within BEGIN and COMMIT.

SET timezone = 'UTC';
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN code AS varchar(32);
CREATE TABLE outbox (
    id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
    type text NOT NULL, payload jsonb, headers json);
CREATE TABLE kinds (
    id int PRIMARY KEY, mood mood, code code, amount numeric(10, 2), tags text[], raw bytea, at timestamptz);
CREATE TABLE whole (a int, b text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE wide (id int PRIMARY KEY, body text);
ALTER TABLE wide ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE events (id int, payload text) PARTITION BY RANGE (id);
CREATE TABLE events_1 (payload text, id int);
ALTER TABLE events ATTACH PARTITION events_1 FOR VALUES FROM (0) TO (100);
CREATE TABLE logs (id int, line text) PARTITION BY RANGE (id);
CREATE TABLE logs_1 (line text, id int);
ALTER TABLE logs ATTACH PARTITION logs_1 FOR VALUES FROM (0) TO (100);
CREATE TABLE unpublished (id int);
CREATE PUBLICATION root FOR TABLE outbox, kinds, whole, wide, events WITH (publish_via_partition_root = true);
CREATE PUBLICATION leaf FOR TABLE logs;
SELECT pg_create_logical_replication_slot('corpus', 'pgoutput');

INSERT INTO outbox VALUES
    ('0197a0e0-0000-7000-8000-000000000001', 'order', 'order-7', 'OrderPlaced', '{"total": 12.50}', '{"tenant":"acme"}');
INSERT INTO outbox VALUES
    ('0197a0e0-0000-7000-8000-000000000002', 'order', 'order-7', 'OrderShipped', NULL, NULL),
    ('0197a0e0-0000-7000-8000-000000000003', 'order', '', '', '{}', '{ "a": 1,  "a": 2 }');
INSERT INTO kinds VALUES
    (1, 'happy', 'x', 12.50, '{a,"b c"}', '\x00ff', '2026-01-02 03:04:05.678901+00'),
    (2, NULL, '', NULL, '{}', '', 'infinity');

-- rolled back, wholly and in part
BEGIN;
INSERT INTO whole VALUES (0, 'never');
ROLLBACK;
BEGIN;
INSERT INTO whole VALUES (1, 'one');
SAVEPOINT s;
INSERT INTO whole VALUES (2, 'never');
ROLLBACK TO SAVEPOINT s;
INSERT INTO whole VALUES (3, 'three');
COMMIT;

-- without anything published
INSERT INTO unpublished VALUES (1);

-- update and delete, by key, by whole row, with values stored out of line
UPDATE whole SET b = 'uno' WHERE a = 1;
DELETE FROM whole WHERE a = 3;
INSERT INTO wide VALUES (1, repeat('x', 3000));
UPDATE wide SET id = 2;
UPDATE wide SET body = 'short';
DELETE FROM wide;
BEGIN;
INSERT INTO outbox VALUES ('0197a0e0-0000-7000-8000-000000000004', 'order', 'order-8', 'OrderPlaced', '{}', NULL);
DELETE FROM outbox WHERE aggregateid = 'order-8';
COMMIT;
TRUNCATE whole;
TRUNCATE whole, wide RESTART IDENTITY CASCADE;

-- partitions
INSERT INTO events VALUES (1, 'by root');
INSERT INTO logs VALUES (1, 'by leaf');
TRUNCATE events, logs;

-- the shape changes within a transaction
BEGIN;
INSERT INTO outbox VALUES ('0197a0e0-0000-7000-8000-000000000005', 'order', 'order-9', 'OrderPlaced', '{}', NULL);
ALTER TABLE outbox ADD COLUMN tenant code DEFAULT 'acme';
INSERT INTO outbox VALUES ('0197a0e0-0000-7000-8000-000000000006', 'order', 'order-9', 'OrderPlaced', '{}', NULL, 'acme');
ALTER TABLE outbox DROP COLUMN type;
INSERT INTO outbox VALUES ('0197a0e0-0000-7000-8000-000000000007', 'order', 'order-9', '{}', NULL, NULL);
COMMIT;
ALTER TABLE outbox RENAME TO outbox_old;
INSERT INTO outbox_old VALUES ('0197a0e0-0000-7000-8000-000000000008', 'order', 'order-9', '{}', NULL, NULL);

-- logical messages; the one that is not transactional outlives its transaction
SELECT pg_logical_emit_message(true, 'snapshot', '10:20:');
BEGIN;
SELECT pg_logical_emit_message(false, 'heartbeat', '\x00ff'::bytea);
SELECT pg_logical_emit_message(true, 'snapshot', 'never');
ROLLBACK;
SELECT pg_logical_emit_message(false, '', '');

-- from elsewhere
SELECT pg_replication_origin_create('upstream');
SELECT pg_replication_origin_session_setup('upstream');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/55AA', '2026-01-02 03:04:05+00');
INSERT INTO logs VALUES (2, 'from elsewhere');
COMMIT;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('upstream');

-- prepared, and committed after a transaction that began later
BEGIN;
INSERT INTO logs VALUES (3, 'prepared');
PREPARE TRANSACTION 'corpus';
INSERT INTO logs VALUES (4, 'in between');
COMMIT PREPARED 'corpus';
