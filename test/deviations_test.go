package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/conformance"
)

// A deviation is what happens in a case where the records are not those that Debezium wrote,
// or where Debezium fails.
type deviation struct {
	does string // one of refuses, stops, better
	code int    // of import or run, for refuses and stops
	says string // which has to be said
	why  string
}

// What is done instead.
const (
	// refuses: import does not take the configuration.
	refuses = "refuses"
	// stops: run ends behind the records that Debezium wrote before it failed.
	stops = "stops"
	// better: other records, those of conformance/better.
	better = "better"
	// reported: whatever happens is fine, as long as it ends.
	reported = "reported"
)

// verify compares an outcome with the recording, or with the deviation.
func (o *outcome) verify(t *testing.T, c *conformance.Case, d deviation, exact bool) {
	t.Helper()
	want := c.Records
	if d.does != "" {
		t.Logf("%s: %s", d.does, d.why)
	}
	switch d.does {
	case "":
		if c.Failure != "" {
			t.Fatalf("Debezium fails here, and what happens instead is not listed: exit code %d\n%s", o.code, o.said)
		}
		if o.refused || o.code != 0 {
			t.Fatalf("exit code %d\n%s", o.code, o.said)
		}
	case refuses:
		if !o.refused {
			t.Errorf("import does not refuse it")
		}
		o.ends(t, d)
		return
	case stops:
		if o.refused {
			t.Errorf("import refuses it")
		}
		o.ends(t, d)
	case better:
		if o.refused || o.code != 0 {
			t.Fatalf("exit code %d\n%s", o.code, o.said)
		}
		want = o.golden(t, c)
	case reported:
		t.Logf("exit code %d, %d records\n%s", o.code, len(o.records), o.said)
		return
	}
	if !exact {
		want = conformance.WithoutContext(want)
	}
	for _, diff := range conformance.Compare(want, o.records, o.run) {
		t.Error(diff)
	}
}

// ends demands the exit code, and that what is wrong is said.
func (o *outcome) ends(t *testing.T, d deviation) {
	t.Helper()
	if o.code != d.code || !strings.Contains(o.said, d.says) {
		t.Errorf("exit code %d, want %d and %q\n%s", o.code, d.code, d.says, o.said)
	}
}

// golden returns the records of conformance/better for a case. OUTBOX_TEST_UPDATE=1 writes them.
func (o *outcome) golden(t *testing.T, c *conformance.Case) []conformance.Record {
	t.Helper()
	path := filepath.Join("conformance", "better", c.Name+".jsonl")
	if os.Getenv("OUTBOX_TEST_UPDATE") == "1" {
		var lines strings.Builder
		for _, r := range o.records {
			lines.WriteString(r.Line() + "\n")
		}
		must(t, os.WriteFile(path, []byte(lines.String()), 0o644))
	}
	data, err := os.ReadFile(path)
	must(t, err)
	records, err := conformance.ParseRecords(string(data))
	must(t, err)
	return records
}

// deviations are the cases in which we do not write what Debezium wrote, by case and profile.
func deviations() map[string]map[string]deviation {
	return map[string]map[string]deviation{}
}
