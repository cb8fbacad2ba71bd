{{define "bound"}}to_char({{.}}, 'YYYY-MM-DD 00:00:00+00'){{end -}}
CREATE TABLE {{.Table}} (
	id            uuid        NOT NULL,
	position      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
	aggregatetype text        NOT NULL,
	aggregateid   text        NOT NULL,
	type          text        NOT NULL,
	payload       jsonb,
	headers       jsonb       CHECK (jsonb_typeof(headers) = 'object'),
	created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
	xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
	PRIMARY KEY (id{{if .Partitioned}}, created_at{{end}})
){{if .Partitioned}} PARTITION BY RANGE (created_at){{end}};

COMMENT ON TABLE {{.Table}} IS
	'Transactional outbox, read by outbox-cdc: a row becomes a Kafka record once its transaction has committed.';
COMMENT ON COLUMN {{.Table}}.id IS
	'Identity of the event, made by its writer (UUIDv7). Header "id" of the record.';
COMMENT ON COLUMN {{.Table}}.position IS
	'Order of insertion. The order of commits, too, for an aggregate whose writers lock it.';
COMMENT ON COLUMN {{.Table}}.aggregatetype IS
	'Kind of thing that changed. Chooses the topic.';
COMMENT ON COLUMN {{.Table}}.aggregateid IS
	'Which of them changed. Key of the record: events of one aggregate keep their order.';
COMMENT ON COLUMN {{.Table}}.type IS
	'What happened to it. Header "eventType" of the record.';
COMMENT ON COLUMN {{.Table}}.payload IS
	'Value of the record. NULL is a tombstone.';
COMMENT ON COLUMN {{.Table}}.headers IS
	'JSON object. Each member becomes a header of the record.';
COMMENT ON COLUMN {{.Table}}.created_at IS
	'When the row was inserted, which is before it was committed.{{if .Partitioned}} Chooses the partition, by UTC day.{{end}}';
COMMENT ON COLUMN {{.Table}}.xid IS
	'Transaction that wrote the row: tells whether a snapshot has seen it.';
{{- if .Partitioned}}

-- Takes the rows of days without a partition, so that a write never fails for want of one.
CREATE TABLE {{.Default}} PARTITION OF {{.Table}} DEFAULT;

{{template "partitions.sql" .}}
{{- end}}
