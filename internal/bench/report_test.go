package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

func TestMarkdown(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), sample().markdown()); diff != "" {
		t.Error(diff)
	}
}

// A report says what the rows of latency and idling were spread over, if that is not usual, and has no batches if there are none.
func TestMarkdownOfOtherBrokersAndPartitions(t *testing.T) {
	r := sample()
	r.Sink, r.Over = "jetstream", spreadOver(100, 12)
	for _, e := range r.Drains[0].Entries {
		for run, result := range e.Runs {
			result.Batches = 0
			e.Runs[run] = result
		}
	}
	text := r.markdown()
	if n := strings.Count(text, "\n\nRows of 12,000 keys, over 100 topics of 12 partitions.\n\n|"); n != 2 {
		t.Errorf("%d tables are over 1,200 partitions, want 2", n)
	}
	if strings.Contains(text, "Batches") || strings.Contains(text, "plain producer") {
		t.Errorf("batches or partitions of another broker:\n%s", text)
	}
}

func TestReportKnowsWhatIsWrong(t *testing.T) {
	r := sample()
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "debezium-tuned has lost, duplicate") {
		t.Errorf("with duplicates: %v", err)
	}
	r.Checks[1].Verdict = measure.Verdict{}
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "1 measurements failed") {
		t.Errorf("with a failure: %v", err)
	}
	r.Failures = nil
	if err := r.err(); err != nil {
		t.Errorf("with nothing wrong: %v", err)
	}
	r.checked("debezium-tuned", 10, measure.Verdict{Lost: 1})
	r.checked("new", 10, measure.Verdict{})
	if err := r.err(); err == nil {
		t.Error("with a loss: no error")
	}
	want := []check{
		{"outbox-cdc", 3, 1_000_000, measure.Verdict{}}, {"debezium-tuned", 3, 500_010, measure.Verdict{Lost: 1}}, {"new", 1, 10, measure.Verdict{}},
	}
	if diff := cmp.Diff(want, r.Checks); diff != "" {
		t.Error(diff)
	}
}

func TestJSONHasEveryRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := sample().saveJSON(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), &back); diff != "" {
		t.Error(diff)
	}
}

func TestEverybodyBeginsOnce(t *testing.T) {
	var first []string
	for run := 1; run <= 3; run++ {
		first = append(first, turn([]string{"a", "b", "c"}, run, 0))
	}
	if got := strings.Join(first, ""); got != "abc" {
		t.Errorf("runs begin with %s", got)
	}
}
