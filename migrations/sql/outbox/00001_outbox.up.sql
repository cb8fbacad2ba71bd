CREATE TABLE {{Table}} (
	id            uuid        NOT NULL,
	position      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
	aggregatetype text        NOT NULL,
	aggregateid   text        NOT NULL,
	type          text        NOT NULL,
	payload       jsonb,
	headers       jsonb       CHECK (jsonb_typeof(headers) = 'object'),
	created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
	xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
	PRIMARY KEY (id{{if partitioned}}, created_at{{end}})
){{if partitioned}} PARTITION BY RANGE (created_at){{end}};

COMMENT ON TABLE {{Table}} IS
	'Transactional outbox. When the transaction of a row has committed, outbox-cdc sends the row to Kafka as a record.';
COMMENT ON COLUMN {{Table}}.id IS
	'Id of the event, a UUIDv7 from the writer. Header "id" of the record.';
COMMENT ON COLUMN {{Table}}.position IS
	'Order of insertion. Also the order of commits of an aggregate, if its writers lock it.';
COMMENT ON COLUMN {{Table}}.aggregatetype IS
	'Kind of thing that changed. Determines the topic.';
COMMENT ON COLUMN {{Table}}.aggregateid IS
	'Id of the thing that changed. Key of the record: events with the same key stay in order.';
COMMENT ON COLUMN {{Table}}.type IS
	'What happened. Header "eventType" of the record.';
COMMENT ON COLUMN {{Table}}.payload IS
	'Value of the record. NULL is a tombstone.';
COMMENT ON COLUMN {{Table}}.headers IS
	'JSON object. Each member becomes a header of the record.';
COMMENT ON COLUMN {{Table}}.created_at IS
	'Time of the insert, before the commit.{{if partitioned}} Its UTC day determines the partition.{{end}}';
COMMENT ON COLUMN {{Table}}.xid IS
	'Transaction that wrote the row. Shows whether the row is visible in a snapshot.';{{if partitioned}}

-- For rows of a day without a partition. Without it the insert would fail.
CREATE TABLE {{Default}} PARTITION OF {{Table}} DEFAULT;

{{Partitions}}{{end}}
