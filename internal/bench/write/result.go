package write

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// A Result has the measurements on one server.
type Result struct {
	Server, Postgres string

	// Of the transaction without an event.
	PerSecond float64
	P99       time.Duration // of COMMIT
	WAL       float64       // bytes

	Events []Event
}

// An Event has the results for a way to write an event: medians of the ratios to the transaction without event.
type Event struct {
	Name                  string
	Throughput, Low, High float64 // median, and the range of the middle half of the rounds
	ServerCPU, ClientCPU  float64 // per transaction; NaN: unknown
	CommitP50, CommitP99  float64
	WALMore               float64 // additional bytes of WAL
}

// measured has the rounds on one server.
type measured struct {
	server, postgres string
	variants         []*series // the first is the transaction without an event
}

// A series has the rounds of a variant.
type series struct {
	name    string
	samples []sample
}

// reduce returns the Result of the rounds.
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

// times returns the ratio of a figure of s to that of none, per round.
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

// commit returns the median over the rounds of a quantile of the commit durations. So a disturbed round counts
// only once, however long its commits took.
func commit(v *series, q float64) time.Duration {
	return time.Duration(measure.Median(of(v.samples, func(s sample) float64 {
		durations := make([]float64, len(s.commits))
		for i, d := range s.commits {
			durations[i] = float64(d)
		}
		return quantile(durations, q)
	})...))
}

// quantile returns the q-quantile of values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
