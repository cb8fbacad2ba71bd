package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A deviation is the outcome of a case in which the relay's records differ from Debezium's, or in which
// Debezium fails.
type deviation struct {
	does string // one of refuses, stops, better
	code int    // of import or run, if does is refuses or stops
	says string // text of the error, if does is refuses or stops
	why  string
}

// Kinds of deviations.
const (
	// refuses: import rejects the configuration.
	refuses = "refuses"
	// stops: run fails. Its records are those that Debezium wrote before it failed, or a subset of the
	// recorded ones if Debezium did not fail.
	stops = "stops"
	// better: run writes the records in conformance/better.
	better = "better"
	// reported: any outcome is accepted, and logged.
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
		o.ends(t, deviation{code: exit.OK})
		want = o.golden(t, c)
	default:
		o.ends(t, deviation{code: exit.OK})
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

// ends checks the exit code and the error.
func (o *outcome) ends(t *testing.T, d deviation) {
	t.Helper()
	if o.code != d.code || !strings.Contains(o.output, d.says) {
		t.Errorf("exit code %d, want %d and %q\n%s", o.code, d.code, d.says, o.output)
	}
}

// golden returns the records in conformance/better for a case. With OUTBOX_TEST_UPDATE=1, it first writes
// them if the case runs with --exact, or if the case is better only without --exact.
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

// contextRun is the context header whose value changes at each start.
const contextRun = "__debezium.context.runId"

// always returns a deviation that is the same with and without --exact.
func always(d deviation) map[string]deviation {
	return map[string]deviation{"exact": d, "plain": d}
}

// unlessExact returns a deviation for a case in which Debezium damages the data. With --exact, the relay
// stops at a bad row. Without --exact, its record is better.
func unlessExact(says, why string) map[string]deviation {
	return map[string]deviation{
		"exact": {stops, exit.BadRecord, says, why},
		"plain": {does: better, why: why},
	}
}

// deviations are the cases in which the relay does not write what Debezium wrote, by case and profile.
var deviations = map[string]map[string]deviation{
	"009-bytea-string": unlessExact("bytes with StringConverter",
		"Debezium writes Java's description of a buffer, and the bytes are lost"),
	"012-bytes-converter-on-jsonb-fails": always(deviation{
		stops, exit.NoDelivery, "is not bytea",
		"the converter does not fit the column's type; the relay reports it before the first row",
	}),
	"023-route-null-fails": always(deviation{
		stops, exit.BadRecord, "is NULL, and the topic's name needs it",
		"the row has no topic",
	}),
	"024-route-invalid-topic-fails": always(deviation{
		stops, exit.BadRecord, "the topic name contains ' '",
		"Kafka allows no such topic name",
	}),
	"025-route-regex-invalid-fails": always(deviation{
		refuses, exit.Usage, "transforms.outbox.route.topic.regex",
		"the expression is invalid; import reports it, not the first row",
	}),
	"029-envelope-adjusted-names": unlessExact("member names that change",
		"renamed members of the document lose their values"),
	"030-envelope-string": always(deviation{
		refuses, exit.Usage, "Struct{",
		"Debezium writes Java's text for an object",
	}),
	"032-partition-out-of-range": always(deviation{
		stops, exit.BadRecord, "the topic has 4 partitions",
		"Debezium neither fails nor continues",
	}),
	"034-missing-column-fails": always(deviation{
		stops, exit.NoDelivery, `no column "nope"`,
		"the relay reports it before the first row",
	}),
	"037-headers-simple-specials": unlessExact("NaN and infinity have no form as a decimal",
		"Debezium writes null for a value"),
	"041-headers-string": unlessExact("bytes with StringConverter",
		"Debezium writes Java's description of a buffer"),
	"046-event-timestamp-timestamptz-fails": always(deviation{
		does: better,
		why:  "a timestamptz defines a time better than a timestamp",
	}),
	"047-event-timestamp-date-fails": always(deviation{
		stops, exit.NoDelivery, "is no timestamp",
		"a date is not a time; the relay reports it before the first row",
	}),
	"048-event-timestamp-connect-mode-fails": always(deviation{
		does: better,
		why:  "the format of other columns does not affect the record's timestamp",
	}),
	"049-event-timestamp-future-fails": always(deviation{
		does: better,
		why:  "the relay replaces a timestamp that the broker rejects, and keeps the original in the header outbox_timestamp",
	}),
	"056-expand-array-fails": unlessExact("a document that is an array",
		"an array is valid JSON"),
	"057-expand-object-arrays": unlessExact("nested objects differ",
		"Debezium loses members"),
	"059-update-fatal": always(deviation{
		does: better,
		why:  "the relay's publication sends no UPDATEs; with another one, the relay stops",
	}),
	"060-truncate-fails": always(deviation{
		does: better,
		why:  "a TRUNCATE is not an event",
	}),
	"064-too-large-fails": always(deviation{
		stops, exit.BadRecord, "MESSAGE_TOO_LARGE",
		"the topic rejects a record of that size",
	}),
	"065-errors-tolerance-all": always(deviation{
		does: better,
		why:  "the relay sends bad rows to the dead-letter topic instead of dropping them",
	}),
	"069-two-outbox-tables": {"plain": {
		does: better,
		why:  "the schema of a table's values has the name of that table, not of the first one",
	}},
	"070-alter-table-midway": unlessExact("the column's default",
		"Debezium replaces NULL with the default"),
	"071-column-defaults": unlessExact("the column's default",
		"Debezium replaces NULL with the default"),
	"076-heartbeat-string": always(deviation{
		does: better,
		why:  "the slot needs no heartbeats, and Debezium writes Java's text for an object as their value",
	}),
	"080-server-bytea-escape": always(deviation{
		does: better,
		why:  "a server setting damages the bytes in Debezium",
	}),
	"081-server-float-digits": always(deviation{
		does: better,
		why:  "a server setting removes digits in Debezium",
	}),
	"082-predicate-second-table": always(deviation{
		does: better,
		why:  "rows of a table that the predicate leaves out are no events, and the relay sends no change events",
	}),
	"084-messages-null-envelope-schema": always(deviation{
		does: better,
		why:  "a NULL member has the schema of a NULL, not of what it was in the first message with such a payload",
	}),
	"085-messages-null-omitted": {"plain": {
		does: better,
		why:  "a NULL member is sent as NULL",
	}},
	"091-server-binary": always(deviation{
		does: better,
		why:  "a header that is NULL is sent, as a null, where Debezium Server leaves it out",
	}),
}
