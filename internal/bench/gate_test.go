package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// drained returns an entry of one run with the given rate per second. Each unit of cpu is one CPU second per
// million rows.
func drained(name, codec string, rate, cpu int, mb int64) *drainEntry {
	return &drainEntry{Contender: name, Compression: codec, Runs: series[measure.DrainResult]{1: {
		Contender: name, Rows: rate, Elapsed: 2 * time.Second, Streaming: time.Second,
		CPUStreaming: time.Duration(cpu*rate) * time.Microsecond, PeakRSS: mb * 1e6,
	}}}
}

// batched adds to the run of e that it had batches of the given size.
func batched(e *drainEntry, size int) *drainEntry {
	r := e.Runs[1]
	r.Batches = r.Rows / size
	e.Runs[1] = r
	return e
}

func flowed(name string, ms int, mb int64) *latencyEntry {
	d := time.Duration(ms) * time.Millisecond
	return &latencyEntry{Contender: name, Runs: series[measure.LatencyResult]{1: {
		Contender: name, Elapsed: time.Second, CPU: 50 * time.Millisecond, PeakRSS: mb * 1e6,
		FromSchedule: measure.Quantiles{P50: d, P90: 2 * d, P99: 3 * d, P999: 4 * d, Max: 5 * d},
	}}}
}

func sample() *report {
	return &report{
		Over: spreadOver(1, 12),
		Machine: machine{
			CPU: "A Processor", Cores: 2, MemoryGB: 23, Kernel: "Linux 6", Load: "0.10", Relay: "v1.0.0", Go: "go1.26 linux/amd64",
			Postgres: "18.6, fsync off", Broker: "Kafka 4.3.1", Library: "franz-go", Java: "openjdk 17", Debezium: "3.7.0.Final",
		},
		Suite: "drain", Sink: "kafka", Runs: 1, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: "1m5s",
		Checks: []check{
			{"outbox-cdc", 3, 1_000_000, measure.Verdict{}},
			{"debezium-tuned", 2, 500_000, measure.Verdict{Duplicates: 17}},
		},
		Failures: []string{"1 kB, one transaction: debezium-default: it took longer than 2m0s\nits log"},
		Drains: []drainTable{{
			Case: drainCase{Name: "200 B, 10 a transaction", Compressions: []string{"none", "lz4"}, Spread: spreadOver(1, 12)},
			Entries: []*drainEntry{
				drained("pg_recvlogical", "", 100_000, 1, 10),
				batched(drained("outbox-cdc", "none", 95_000, 3, 21), 50), batched(drained("outbox-cdc", "lz4", 90_000, 4, 25), 1),
				drained("client-library", "none", 190_000, 6, 30),
				batched(drained("debezium-tuned", "none", 30_000, 40, 700), 4),
				{Contender: "debezium-tuned", Compression: "lz4"},
			},
		}},
		Latency: []latencyTable{{Rate: 1000, Entries: []*latencyEntry{flowed("outbox-cdc", 1, 20), flowed("client-library", 2, 30), flowed("debezium-tuned", 10, 600), {Contender: "debezium-default"}}}},
		Resting: []resting{{
			"outbox-cdc",
			series[time.Duration]{1: 210 * time.Millisecond},
			series[measure.IdleResult]{1: {CPU: time.Millisecond, Elapsed: 10 * time.Second, RSS: 19e6}},
		}},
		Outages: []outage{{"outbox-cdc", series[measure.OutageResult]{1: {
			Contender: "outbox-cdc", Rows: 360_000, Down: 30 * time.Second, CatchUp: 2 * time.Second, CPU: 300 * time.Millisecond,
			Before: 30e6, During: 35e6, After: 34e6, Delivered: 36e6, PeakRSS: 37e6,
		}}}},
	}
}

func TestGate(t *testing.T) {
	g := gate{
		Drain: []drainRule{
			{Case: "200 B", MinRate: 0.92, MaxCPU: 3},
			{Codec: "lz4", MaxRSSMB: 24},
			{Against: "debezium-tuned", MinRate: 2.5},
			{Case: "10 kB", MinRate: 5},
			{Against: "nobody", MinRate: 5},
			{Sink: "kafka", Against: "client-library", MinRate: 0.4},
			{Sink: "jetstream", MinRate: 5},
			{MaxPartitions: 12, Codec: "none", MaxRSSMB: 21},
			{MaxPartitions: 11, MinRate: 5},
		},
		Latency: []latencyRule{
			{Rate: 1000, Against: "debezium-tuned", MaxP50: 0.1, MaxP99: 0.05},
			{Rate: 3000, MaxRSSMB: 1},
			{MaxRSSMB: 20, MaxPartitions: 12},
			{MaxRSSMB: 1, MaxPartitions: 11},
			{Sink: "redis_streams", MaxRSSMB: 1},
		},
		Outage: []outageRule{{MaxGrowthMB: 4}, {Sink: "sqs", MaxGrowthMB: 1}},
	}
	comparisons, err := g.check(sample())
	if err == nil || err.Error() != "5 of 12 figures do not pass the gate" {
		t.Errorf("pass: %v", err)
	}
	var got []string
	for _, p := range comparisons {
		got = append(got, p.String())
	}
	want := []string{
		"ok   200 B, 10 a transaction, none: rows/s ÷ pg_recvlogical is 0.95, at least 0.92",
		"ok   200 B, 10 a transaction, none: CPU ÷ pg_recvlogical is 3.00, at most 3.00",
		"FAIL 200 B, 10 a transaction, lz4: rows/s ÷ pg_recvlogical is 0.90, at least 0.92",
		"FAIL 200 B, 10 a transaction, lz4: CPU ÷ pg_recvlogical is 4.00, at most 3.00",
		"FAIL 200 B, 10 a transaction, lz4: peak memory in MB is 25.0, at most 24.0",
		"ok   200 B, 10 a transaction, none: rows/s ÷ debezium-tuned is 3.17, at least 2.50",
		"ok   200 B, 10 a transaction, none: rows/s ÷ client-library is 0.50, at least 0.40",
		"ok   200 B, 10 a transaction, none: peak memory in MB is 21.0, at most 21.0",
		"ok   1,000/s: p50 ÷ debezium-tuned is 0.10, at most 0.10",
		"FAIL 1,000/s: p99 ÷ debezium-tuned is 0.10, at most 0.05",
		"ok   1,000/s: peak memory in MB is 20.0, at most 20.0",
		"FAIL outage: growth of memory in MB is 5.00, at most 4.00",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := (gate{Drain: []drainRule{{Case: "10 kB", MinRate: 5}}}).check(sample()); err == nil {
		t.Error("a gate passes although none of its rules applies")
	}
}

// TestOurGate: every rule of the committed file applies to something that a suite measures.
func TestOurGate(t *testing.T) {
	g, err := readGate("../../cmd/outbox-cdc-bench/gate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	full := mustPlan(t, "--suite", "full")
	for _, rule := range g.Drain {
		if !strings.Contains(strings.Join(names(full), "\n"), rule.Case) {
			t.Errorf("no drain is called %q", rule.Case)
		}
	}
	for _, rule := range g.Drain {
		if _, known := kinds()[rule.Sink]; !known && rule.Sink != "" {
			t.Errorf("there is no --sink %q", rule.Sink)
		}
	}
	for _, rule := range g.Latency {
		if rule.Rate != 0 && !strings.Contains(fmt.Sprint(full.rates), fmt.Sprint(rule.Rate)) {
			t.Errorf("nothing is measured at %d/s", rule.Rate)
		}
	}
}

func TestReadGateRefusesWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gate.yaml")
	if err := os.WriteFile(path, []byte("drain: [{min_speed: 1}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readGate(path); err == nil || !strings.Contains(err.Error(), "min_speed") {
		t.Errorf("readGate: %v", err)
	}
}
