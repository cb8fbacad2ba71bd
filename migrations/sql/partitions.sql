CREATE FUNCTION {{CreatePartitions}}(days integer) RETURNS SETOF text
LANGUAGE plpgsql AS $function$
DECLARE
	root  CONSTANT regclass := {{TableLiteral}};
	today CONSTANT date     := (clock_timestamp() AT TIME ZONE 'UTC')::date;
	day   date;
	part  text;
BEGIN
	-- One caller at a time: two could create the same partition.
	PERFORM pg_advisory_xact_lock('pg_class'::regclass::oid::integer, root::oid::integer);
	FOR day IN SELECT today + n FROM generate_series(0, days) AS n LOOP
		SELECT format('%I.%I', n.nspname, c.relname || to_char(day, '_YYYYMMDD')) INTO part
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = root;
		CONTINUE WHEN to_regclass(part) IS NOT NULL;
		BEGIN
			-- CREATE TABLE ... PARTITION OF would wait for all open writers, and block new ones meanwhile.
			EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS'
				|| ' INCLUDING STORAGE INCLUDING COMPRESSION)', part, root);
			EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', root, part,
				{{Bound}}, {{NextBound}});
			RETURN NEXT part;
		EXCEPTION WHEN check_violation THEN
			RAISE WARNING 'no partition of % for %: the default partition has rows of that day', root, day;
		END;
	END LOOP;
END
$function$;

COMMENT ON FUNCTION {{CreatePartitions}}(integer) IS
	'Creates missing partitions for today and the given number of days after it, and returns their names. Call it daily.';

SELECT {{CreatePartitions}}({{InitialDays}});
