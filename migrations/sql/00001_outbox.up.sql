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

CREATE FUNCTION {{.CreatePartitions}}(days integer) RETURNS SETOF text
LANGUAGE plpgsql AS $function$
DECLARE
	root  CONSTANT regclass := {{.TableLiteral}};
	today CONSTANT date     := (clock_timestamp() AT TIME ZONE 'UTC')::date;
	day   date;
	part  text;
BEGIN
	-- One caller at a time: two would race to create the same partition.
	PERFORM pg_advisory_xact_lock('pg_class'::regclass::oid::integer, root::oid::integer);
	FOR day IN SELECT today + n FROM generate_series(0, days) AS n LOOP
		SELECT format('%I.%I', n.nspname, c.relname || to_char(day, '_YYYYMMDD')) INTO part
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = root;
		CONTINUE WHEN to_regclass(part) IS NOT NULL;
		BEGIN
			-- CREATE TABLE ... PARTITION OF would wait for every open writer, and all others behind it.
			EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS'
				|| ' INCLUDING STORAGE INCLUDING COMPRESSION)', part, root);
			EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', root, part,
				to_char(day, 'YYYY-MM-DD 00:00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00:00+00'));
			RETURN NEXT part;
		EXCEPTION WHEN check_violation THEN
			RAISE WARNING 'no partition of % for %: the default partition already holds rows of that day', root, day;
		END;
	END LOOP;
END
$function$;

COMMENT ON FUNCTION {{.CreatePartitions}}(integer) IS
	'Creates the partitions of today and the given number of days after it, where missing, and returns their names. Call it daily.';

SELECT {{.CreatePartitions}}({{.InitialDays}});
{{- end}}
