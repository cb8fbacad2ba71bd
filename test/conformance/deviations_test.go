package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A deviation is what happens in a case where the records are not those that Debezium wrote,
// or where Debezium fails.
type deviation struct {
	does string // one of refuses, stops, better
	code int    // of import or run, for refuses and stops
	says string // which has to be said, for refuses and stops
	why  string
}

// What is done instead.
const (
	// refuses: import does not take the configuration.
	refuses = "refuses"
	// stops: run ends, with no record that Debezium did not write before it failed; if it did
	// not fail, with none that differs.
	stops = "stops"
	// better: the records of conformance/better.
	better = "better"
	// reported: whatever happens is fine, as long as it ends.
	reported = "reported"
)

// verify compares an outcome with the recording, or with the deviation.
func (o *outcome) verify(t *testing.T, c *recordedCase, d deviation) {
	t.Helper()
	want := c.records
	if d.does != "" {
		t.Logf("%s: %s", d.does, d.why)
	}
	if o.refused != (d.does == refuses) && d.does != reported {
		t.Fatalf("refused by import: %t, want %t\n%s", o.refused, !o.refused, o.output)
	}
	switch d.does {
	case reported:
		t.Logf("exit code %d, %d records\n%s", o.code, len(o.records), o.output)
		return
	case refuses:
		o.ends(t, d)
		return
	case stops:
		o.ends(t, d)
		if c.failure == "" {
			want = among(want, o.records)
		}
	case better:
		o.ends(t, deviation{code: relay.ExitOK})
		want = o.golden(t, c)
	default:
		o.ends(t, deviation{code: relay.ExitOK})
		if c.failure != "" {
			t.Errorf("Debezium fails here, and what happens instead is not listed")
		}
	}
	if !o.exact {
		want = withoutContext(want)
	}
	for _, diff := range compare(want, o.records, o.run) {
		t.Error(diff)
	}
}

// ends demands the exit code, and that what is wrong is said.
func (o *outcome) ends(t *testing.T, d deviation) {
	t.Helper()
	if o.code != d.code || !strings.Contains(o.output, d.says) {
		t.Errorf("exit code %d, want %d and %q\n%s", o.code, d.code, d.says, o.output)
	}
}

// golden returns the records of conformance/better for a case. OUTBOX_TEST_UPDATE=1 writes them,
// when the case runs with --exact or is better only without.
func (o *outcome) golden(t *testing.T, c *recordedCase) []Record {
	t.Helper()
	path := filepath.Join("better", c.name+".jsonl")
	if os.Getenv("OUTBOX_TEST_UPDATE") == "1" && (o.exact || deviations[c.name]["exact"].does != better) {
		var lines strings.Builder
		for _, r := range lasting(o.records, o.run, contextRun, encode.DeadLetterAt, encode.DeadLetterLSN, encode.DeadLetterSlot) {
			lines.WriteString(r.line() + "\n")
		}
		rig.Must(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	}
	data, err := os.ReadFile(path)
	rig.Must(t, err)
	records, err := parseRecords(string(data))
	rig.Must(t, err)
	return records
}

// contextRun is the context header that is new with every start.
const contextRun = "__debezium.context.runId"

// always is a deviation with --exact and without.
func always(d deviation) map[string]deviation {
	return map[string]deviation{"exact": d, "plain": d}
}

// unlessExact is what is better without --exact, and refused as a bad row with it, because what
// Debezium writes is damage.
func unlessExact(says, why string) map[string]deviation {
	return map[string]deviation{
		"exact": {stops, relay.ExitBadRecord, says, why},
		"plain": {does: better, why: why},
	}
}

// deviations are the cases in which we do not write what Debezium wrote, by case and profile.
var deviations = map[string]map[string]deviation{
	"009-bytea-string": unlessExact("bytes with StringConverter",
		"Debezium writes Java's description of a buffer, and the bytes are lost"),
	"012-bytes-converter-on-jsonb-fails": always(deviation{
		stops, relay.ExitNoDelivery, "is not bytea",
		"the column cannot be what the converter is for, which is told before the first row",
	}),
	"023-route-null-fails": always(deviation{
		stops, relay.ExitBadRecord, "is NULL, and the topic's name needs it",
		"there is no topic for the row",
	}),
	"024-route-invalid-topic-fails": always(deviation{
		stops, relay.ExitBadRecord, "the topic name contains ' '",
		"Kafka has no such topic",
	}),
	"025-route-regex-invalid-fails": always(deviation{
		refuses, relay.ExitUsage, "transforms.outbox.route.topic.regex",
		"the expression is wrong, which import tells and not the first row",
	}),
	"029-envelope-adjusted-names": unlessExact("member names that change",
		"members of the document that get another name lose their values"),
	"030-envelope-string": always(deviation{
		refuses, relay.ExitUsage, "Struct{",
		"the value is Java's text of an object",
	}),
	"032-partition-out-of-range": always(deviation{
		stops, relay.ExitBadRecord, "the topic has 4 partitions",
		"Debezium neither fails nor goes on",
	}),
	"034-missing-column-fails": always(deviation{
		stops, relay.ExitNoDelivery, `no column "nope"`,
		"told before the first row",
	}),
	"037-headers-simple-specials": unlessExact("NaN and infinity have no form as a decimal",
		"a value that is there becomes null"),
	"041-headers-string": unlessExact("bytes with StringConverter",
		"Java's description of a buffer"),
	"046-event-timestamp-timestamptz-fails": always(deviation{
		does: better,
		why:  "a timestamptz says better than a timestamp when something was",
	}),
	"047-event-timestamp-date-fails": always(deviation{
		stops, relay.ExitNoDelivery, "is no timestamp",
		"a day is no time, which is told before the first row",
	}),
	"048-event-timestamp-connect-mode-fails": always(deviation{
		does: better,
		why:  "how columns are rendered elsewhere does not matter to the record's time",
	}),
	"049-event-timestamp-future-fails": always(deviation{
		does: better,
		why:  "what the broker refuses is replaced, and the original kept in the header outbox_timestamp",
	}),
	"056-expand-array-fails": unlessExact("a document that is an array",
		"an array is JSON like any other"),
	"057-expand-object-arrays": unlessExact("nested objects differ",
		"members are lost"),
	"059-update-fatal": always(deviation{
		does: better,
		why:  "the publication that is made sends no UPDATE; one that sends them ends the relay",
	}),
	"060-truncate-fails": always(deviation{
		does: better,
		why:  "a TRUNCATE is no event",
	}),
	"064-too-large-fails": always(deviation{
		stops, relay.ExitBadRecord, "MESSAGE_TOO_LARGE",
		"the topic takes no record of that size",
	}),
	"065-errors-tolerance-all": always(deviation{
		does: better,
		why:  "rows are put aside instead of dropped",
	}),
	"069-two-outbox-tables": {"plain": {
		does: better,
		why:  "each table's values have a schema of its own name, not of the first one's",
	}},
	"070-alter-table-midway": unlessExact("the column's default",
		"a NULL becomes the default"),
	"071-column-defaults": unlessExact("the column's default",
		"a NULL becomes the default"),
	"076-heartbeat-string": always(deviation{
		does: better,
		why:  "the slot needs no heartbeats, whose value is Java's text of an object",
	}),
	"080-server-bytea-escape": always(deviation{
		does: better,
		why:  "a setting of the server damages the bytes",
	}),
	"081-server-float-digits": always(deviation{
		does: better,
		why:  "a setting of the server takes digits away",
	}),
}
