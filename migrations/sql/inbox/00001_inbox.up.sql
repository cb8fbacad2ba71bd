CREATE TABLE {{Table}} (
	event_id     uuid        NOT NULL,
	processed_at timestamptz NOT NULL DEFAULT now(),
	consumer     text        NOT NULL,
	PRIMARY KEY (consumer, event_id)
){{if partitioned}} PARTITION BY RANGE (event_id){{end}};

COMMENT ON TABLE {{Table}} IS
	'Claims: which consumer has processed which event. Written in the transaction of the effects, so that a duplicate is found.';
COMMENT ON COLUMN {{Table}}.event_id IS
	'Id of the event: header "id" of the record.{{if partitioned}} The UTC day of its UUIDv7 determines the partition.{{end}}';
COMMENT ON COLUMN {{Table}}.processed_at IS
	'Start of the transaction that processed the event.';
COMMENT ON COLUMN {{Table}}.consumer IS
	'Name of the consumer. Claims of different consumers are independent.';{{if partitioned}}

-- For ids of a day without a partition, and for ids that are not a UUIDv7.
CREATE TABLE {{Default}} PARTITION OF {{Table}} DEFAULT;

{{Partitions}}{{end}}

CREATE TABLE {{Events}} (
	consumer      text        NOT NULL,
	event_id      uuid        NOT NULL,
	position      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
	lane          uuid        NOT NULL,
	type          text        NOT NULL,
	topic         text        NOT NULL,
	partition     integer     NOT NULL,
	log_offset    bigint      NOT NULL,
	key           bytea,
	payload       bytea,
	header_names  text[]      NOT NULL,
	header_values bytea[]     NOT NULL,
	produced_at   timestamptz NOT NULL,
	received_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	attempts      integer     NOT NULL,
	last_error    text,
	due_at        timestamptz,
	parked_at     timestamptz,
	leased_by     uuid,
	leased_until  timestamptz,
	PRIMARY KEY (consumer, event_id),
	CHECK (due_at IS NULL OR parked_at IS NULL)
);
CREATE INDEX ON {{Events}} (consumer, lane, position);
CREATE INDEX ON {{Events}} (consumer, due_at) WHERE due_at IS NOT NULL;

COMMENT ON TABLE {{Events}} IS
	'Events that a consumer has received and not processed. They wait for their next attempt, wait behind an earlier event of their key, or are parked.';
COMMENT ON COLUMN {{Events}}.consumer IS
	'Name of the consumer.';
COMMENT ON COLUMN {{Events}}.event_id IS
	'Id of the event: header "id" of the record.';
COMMENT ON COLUMN {{Events}}.position IS
	'Order of arrival. Events of a lane are processed in this order.';
COMMENT ON COLUMN {{Events}}.lane IS
	'Hash of topic and key. Only the first event of a lane has due_at or parked_at. The others wait behind it.';
COMMENT ON COLUMN {{Events}}.type IS
	'What happened: header "eventType" of the record.';
COMMENT ON COLUMN {{Events}}.topic IS
	'Topic of the record.';
COMMENT ON COLUMN {{Events}}.partition IS
	'Partition of the record.';
COMMENT ON COLUMN {{Events}}.log_offset IS
	'Offset of the record in its partition.';
COMMENT ON COLUMN {{Events}}.key IS
	'Key of the record: the aggregate''s id.';
COMMENT ON COLUMN {{Events}}.payload IS
	'Value of the record. NULL is a tombstone.';
COMMENT ON COLUMN {{Events}}.header_names IS
	'Names of the record''s headers, in order.';
COMMENT ON COLUMN {{Events}}.header_values IS
	'Values of the record''s headers, in order.';
COMMENT ON COLUMN {{Events}}.produced_at IS
	'Timestamp of the record.';
COMMENT ON COLUMN {{Events}}.received_at IS
	'When the event was stored here.';
COMMENT ON COLUMN {{Events}}.attempts IS
	'Number of failed attempts.';
COMMENT ON COLUMN {{Events}}.last_error IS
	'Error of the last attempt.';
COMMENT ON COLUMN {{Events}}.due_at IS
	'Time of the next attempt. NULL if the event waits behind another one of its lane or is parked.';
COMMENT ON COLUMN {{Events}}.parked_at IS
	'When the event was parked. It stays until you run outbox-cdc inbox retry or discard.';
COMMENT ON COLUMN {{Events}}.leased_by IS
	'The processor that is handling the event, until leased_until.';
COMMENT ON COLUMN {{Events}}.leased_until IS
	'Until then no other processor handles the event. Renewed during the attempt.';
