package debezium

import (
	"cmp"
	"io"
	"net/url"
	"strings"
)

// A Plan is how to go back to Debezium.
type Plan struct{ text string }

// WriteTo writes the plan as shell commands with comments.
func (p Plan) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, p.text)
	return int64(n), err
}

// RollbackPlan returns how to let the connector continue where outbox-cdc has stopped.
//
// Debezium's stored offset is before the slot by then. With an offset whose WAL was removed, the connector
// does not start, or, with snapshot.mode=when_needed, resends the whole table. Without an offset and with
// snapshot.mode=no_data, it continues at the slot.
func (r *Result) RollbackPlan() Plan {
	const head = `# From outbox-cdc back to Debezium, on slot {slot}.

# 1. Stop outbox-cdc (SIGTERM) and wait until it has ended: it confirms to the slot what Kafka has acknowledged.
#    Nobody may hold the slot now; this has to print f:
psql "$DSN" -Atc "SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"

# 2. Where it goes on, for the record. Rows behind this position come from Debezium:
psql "$DSN" -Atc "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"

`
	const connect = `# 3. Forget the connector's offset, which is older than the slot, and have it copy nothing. Kafka 3.6 and later:
export CONNECT=http://localhost:8083
curl -sf -X PUT "$CONNECT/connectors/{connector}/stop"
curl -sf "$CONNECT/connectors/{connector}/config" | jq '."snapshot.mode" = "no_data"' |
  curl -sf -X PUT -H 'Content-Type: application/json' --data @- "$CONNECT/connectors/{connector}/config"
curl -sf -X DELETE "$CONNECT/connectors/{connector}/offsets"
curl -sf -X PUT "$CONNECT/connectors/{connector}/resume"
#    If the connector has been deleted, make it stopped (Kafka 3.7 and later), and go on with the last two commands:
#    jq '{name: "{name}", config: (.config // .), initial_state: "STOPPED"} | .config."snapshot.mode" = "no_data"' connector.json |
#      curl -sf -H 'Content-Type: application/json' --data @- "$CONNECT/connectors"
#    Before Kafka 3.6, and with a standalone worker: set snapshot.mode=no_data and, in place of deleting the offset,
#    offset.mismatch.strategy=trust_slot (Debezium 3.4 and later), or give the connector another name.

# 4. It runs, and the slot is in use again: RUNNING twice, and t.
curl -sf "$CONNECT/connectors/{connector}/status" | jq -r '.connector.state, .tasks[].state'
`
	const server = `# 3. Forget the stored offset, which is older than the slot, and have Debezium copy nothing:
mv {offsets} {offsets}.old   # offset.storage.file.filename
#    and set snapshot.mode=no_data (Debezium Server: debezium.source.snapshot.mode)

# 4. Start Debezium. The slot is in use again, t:
`
	const tail = `psql "$DSN" -Atc "SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"

# Leave slot {slot} and publication {publication} as they are, all the time. Topic outbox-cdc.positions keeps
# where outbox-cdc was: when it takes over again, start it once with --accept-gap.
`
	middle := connect
	if r.alone {
		middle = server
	}
	return r.plan(head + middle + tail)
}

// plan fills in the names of a plan.
func (r *Result) plan(text string, more ...string) Plan {
	name := cmp.Or(r.connector, "NAME")
	return Plan{strings.NewReplacer(append(more,
		"{slot}", cmp.Or(r.oldSlot, r.slot), "{new}", r.slot, "{stop}", r.stop, "{connector}", url.PathEscape(name), "{name}", name, "{publication}", r.publication, "{offsets}", cmp.Or(r.offsets, "data/offsets.dat"),
	)...).Replace(text)}
}
