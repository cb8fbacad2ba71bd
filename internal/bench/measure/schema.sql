-- Vacuum would come at a moment of its own.
ALTER TABLE bench.outbox SET (autovacuum_enabled = false, toast.autovacuum_enabled = false);

-- Random bytes that the payloads' contents are cut from; not in the log.
CREATE UNLOGGED TABLE bench.dust (bytes bytea NOT NULL);
ALTER TABLE bench.dust ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Writes rows first to last - 1 in transactions of per_transaction rows, or in the caller's
-- transaction if that is 0.
CREATE PROCEDURE bench.load(first bigint, last bigint, per_transaction bigint, keys bigint, topics bigint, payload_bytes bigint,
	fixed_bytes bigint, offsets bigint)
LANGUAGE plpgsql AS $procedure$
DECLARE
	dust CONSTANT bytea := (SELECT bytes FROM bench.dust);
	step CONSTANT bigint := CASE per_transaction WHEN 0 THEN last - first ELSE per_transaction END;
BEGIN
	WHILE first < last LOOP
		INSERT INTO bench.outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT
			('00000000-0000-7000-8000-' || lpad(to_hex(row), 12, '0'))::uuid, 't' || k % topics, k::text, 'OrderPlaced',
			('{"k": ' || k || ', "n": ' || n || ', "kind": "order", "status": "placed", "content": "'
				|| encode(substring(dust FROM (1 + row * (payload_bytes / 2) % offsets)::integer
					FOR ((payload_bytes - fixed_bytes - length(k::text) - length(n::text)) / 2)::integer), 'hex')
				|| '"}')::jsonb
		FROM (
			SELECT row, row % keys AS k, row / keys AS n FROM generate_series(first, least(first + step, last) - 1) AS row
		) AS rows
		ORDER BY row;
		IF per_transaction > 0 THEN
			COMMIT;
		END IF;
		first := first + step;
	END LOOP;
END
$procedure$;
