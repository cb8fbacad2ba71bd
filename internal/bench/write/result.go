package write

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// A Result is what was measured on one server.
type Result struct {
	Server, Postgres string

	// Of the transaction without an event.
	PerSecond float64
	P99       time.Duration // of COMMIT
	WAL       float64       // bytes

	Events []Event
}

// An Event is one way to write an event: medians of the ratios to the transaction without one.
type Event struct {
	Name                  string
	Throughput, Low, High float64 // the middle, and the range of the middle half of the rounds
	ServerCPU, ClientCPU  float64 // per transaction; NaN where the kernel does not say
	CommitP50, CommitP99  float64
	WALMore               float64 // bytes more than without
}

// measured are the rounds on one server.
type measured struct {
	server, postgres string
	variants         []*series // the first is the transaction without an event
}

// A series is one variant's rounds.
type series struct {
	name    string
	samples []sample
}

// reduce returns what r comes to.
func (m *measured) reduce() Result {
	none := m.variants[0]
	r := Result{
		Server: m.server, Postgres: m.postgres,
		PerSecond: measure.Median(of(none.samples, rate)...), P99: commit(none, 0.99), WAL: measure.Median(of(none.samples, wal)...),
	}
	for _, v := range m.variants[1:] {
		throughput := v.times(none, rate)
		more := make([]float64, len(v.samples))
		for i, s := range v.samples {
			more[i] = s.wal - none.samples[i].wal
		}
		r.Events = append(r.Events, Event{
			Name: v.name, Throughput: measure.Median(throughput...), Low: quantile(throughput, 0.25), High: quantile(throughput, 0.75),
			ServerCPU: measure.Median(v.times(none, func(s sample) float64 { return s.server })...),
			ClientCPU: measure.Median(v.times(none, func(s sample) float64 { return s.client })...),
			CommitP50: float64(commit(v, 0.5)) / float64(commit(none, 0.5)), CommitP99: float64(commit(v, 0.99)) / float64(r.P99),
			WALMore: measure.Median(more...),
		})
	}
	return r
}

// times returns by how much s exceeds none, round by round.
func (s *series) times(none *series, f func(sample) float64) []float64 {
	ratios := make([]float64, len(s.samples))
	for i := range ratios {
		ratios[i] = f(s.samples[i]) / f(none.samples[i])
	}
	return ratios
}

func rate(s sample) float64 { return s.perSecond }
func wal(s sample) float64  { return s.wal }

func of(samples []sample, f func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = f(s)
	}
	return values
}

// commit returns the median over the rounds of a quantile of the commits' durations: a round that
// was disturbed counts once, however long its commits took.
func commit(v *series, q float64) time.Duration {
	return time.Duration(measure.Median(of(v.samples, func(s sample) float64 {
		durations := make([]float64, len(s.commits))
		for i, d := range s.commits {
			durations[i] = float64(d)
		}
		return quantile(durations, q)
	})...))
}

// quantile returns the value that a share q of values is not above.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
