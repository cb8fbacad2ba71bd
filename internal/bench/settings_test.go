package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// parse returns the settings of the command line args.
func parse(args []string) (*settings, error) {
	s := &settings{}
	cmd := &cobra.Command{}
	s.flags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	return s, s.validate()
}

func mustPlan(t *testing.T, args ...string) plan {
	t.Helper()
	s, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func names(p plan) []string {
	var all []string
	for _, c := range p.drains {
		all = append(all, c.Name)
	}
	return all
}

func TestDimensionsReplaceTheSuites(t *testing.T) {
	p := mustPlan(t, "--suite", "full", "--match", "a transaction|one transaction",
		"--payload", "200, 10000", "--per-transaction", "5,all", "--compression", "zstd", "--rows", "1000")
	want := []string{
		"200 B, 5 a transaction", "200 B, one transaction", "10 kB, 5 a transaction", "10 kB, one transaction",
		"a million rows in one transaction",
	}
	if diff := cmp.Diff(want, names(p)); diff != "" {
		t.Error(diff)
	}
	last := p.drains[3]
	if last.Rows != 1000 || last.PerTransaction != 1000 || !slices.Equal(last.Compressions, []string{"zstd"}) {
		t.Errorf("%+v", last)
	}
	if len(p.rates) > 0 || p.startUp || p.idle > 0 {
		t.Error("--match leaves more than drains")
	}
	p = mustPlan(t, "--suite", "latency", "--rate", "50", "--duration", "3s")
	if !slices.Equal(p.rates, []int{50}) || p.flow != 3*time.Second || len(p.drains) > 0 {
		t.Errorf("%+v", p)
	}
}

// The topics and partitions of the flags apply to drains and to everything else, with keys for each partition.
func TestTopicsAndPartitions(t *testing.T) {
	p := mustPlan(t, "--topics", "100", "--partitions", "12", "--payload", "200", "--per-transaction", "10")
	want := Spread{Keys: 12_000, Topics: 100, Partitions: 12}
	if p.over != want || p.drains[0].Spread != want {
		t.Errorf("%+v, and drains %+v, want %+v", p.over, p.drains[0].Spread, want)
	}
	if diff := cmp.Diff([]string{"200 B, 10 a transaction, 100 topics of 12 partitions"}, names(p)); diff != "" {
		t.Error(diff)
	}
	p = mustPlan(t, "--suite", "latency", "--topics", "2", "--partitions", "1", "--keys", "7", "--duration", "30s")
	if want := (Spread{Keys: 7, Topics: 2, Partitions: 1}); p.over != want || p.idle != 30*time.Second {
		t.Errorf("%+v, idle for %v", p.over, p.idle)
	}
	if p := mustPlan(t); p.over != (Spread{Keys: 1000, Topics: 1, Partitions: 12}) {
		t.Errorf("by default %+v", p.over)
	}
}

// The suite partitions measures the same rows over more and more partitions.
func TestPartitionsSuite(t *testing.T) {
	p := mustPlan(t, "--suite", "partitions")
	var counts []int
	for _, c := range p.drains {
		counts = append(counts, c.allPartitions())
		if c.Rows != p.drains[0].Rows || c.Keys < 10*c.allPartitions() || len(c.Compressions) != 3 {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff([]int{1, 12, 120, 1200, 12_000}, counts); diff != "" {
		t.Error(diff)
	}
	p = mustPlan(t, "--suite", "partitions", "--rows", "50", "--compression", "zstd", "--match", "^1 partition$")
	if len(p.drains) != 1 || p.drains[0].Rows != 50 || !slices.Equal(p.drains[0].Compressions, []string{"zstd"}) {
		t.Errorf("%+v", p.drains)
	}
}

// TestFullIsEverything: no suite measures something that full does not.
func TestFullIsEverything(t *testing.T) {
	full := mustPlan(t, "--suite", "full")
	for _, c := range suites() {
		p := mustPlan(t, "--suite", c.name)
		for _, name := range names(p) {
			if !slices.Contains(names(full), name) {
				t.Errorf("full has no %q of %s", name, c.name)
			}
		}
		for _, rate := range p.rates {
			if !slices.Contains(full.rates, rate) {
				t.Errorf("full has no %d/s of %s", rate, c.name)
			}
		}
	}
	all := names(full)
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != len(full.drains) {
		t.Errorf("%d drains have %d names", len(full.drains), got)
	}
}

func TestRelays(t *testing.T) {
	s, err := parse([]string{"--relay", "bin/outbox-cdc", "--relay", "before=/tmp/old", "--debezium", "--only", "before, pg_recvlogical"})
	if err != nil {
		t.Fatal(err)
	}
	want := []program{{"outbox-cdc", "bin/outbox-cdc"}, {"before", "/tmp/old"}}
	if !slices.Equal(s.relays, want) || !s.debezium || !slices.Equal(s.only, []string{"before", "pg_recvlogical"}) {
		t.Errorf("%+v", s)
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--suite nothing":             `unknown suite "nothing"`,
		"--runs 0":                    "at least 1",
		"--rows -1":                   "negative",
		"--payload 0":                 `"0" is not a positive number`,
		"--per-transaction 10,,":      `"" is not a positive number`,
		"--per-transaction many":      `"many"`,
		"--only a,":                   "empty entry",
		"--payload 100":               "120",
		"--rate -1":                   `"-1"`,
		"--duration 10ms":             "at least 1s",
		"--partitions -1":             "negative",
		"--topics -1":                 "negative",
		"--relay a --relay b":         "two programs have the label outbox-cdc",
		"--own-servers --postgres 13": "at least 14",
		"--postgres 15":               "for --own-servers",
		"--sink jetstream":            "for --own-servers",
		"--own-servers --sink nats":   `unknown --sink "nats"; there are: jetstream, kafka`,
		"--own-servers --sink sqs --compression zstd": "for Kafka",
		"--own-servers --sink sqs --debezium":         "for Kafka",
		"--own-servers --sink sqs --topics 2":         "for Kafka",
		"--outage 1s":                                 "for --own-servers",
		"--own-servers --outage 1s --brokers k:1":     "for --own-servers",
		"--own-servers --outage 1s --outage-rows 0":   "must be positive",
		"--match nothing":                             "no drain of suite quick matches",
		"--match (":                                   "missing closing",
		"--suite latency --match 10":                  "no drain of suite latency",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// If no codec is named, the benchmark measures the codec of the configuration.
func TestCodecOfTheConfiguration(t *testing.T) {
	s, err := parse([]string{"--suite", "full"})
	if err != nil {
		t.Fatal(err)
	}
	s.codec = "snappy"
	p, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	codecs := make(map[string]bool)
	for _, c := range p.drains {
		codecs[strings.Join(c.Compressions, " ")] = true
	}
	if diff := cmp.Diff(map[string]bool{"none lz4 zstd": true, "snappy": true}, codecs); diff != "" {
		t.Error(diff)
	}
}

// With rate 0, the benchmark measures no latency.
func TestNoLatency(t *testing.T) {
	if p := mustPlan(t, "--rate", "0"); len(p.rates) > 0 || !p.startUp {
		t.Errorf("%+v", p)
	}
}
