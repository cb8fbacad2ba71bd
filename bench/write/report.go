package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// A result is what was measured on one server.
type result struct {
	server, postgres string
	options
	variants []*series // the first is the transaction without an event
}

// A series is one variant's rounds.
type series struct {
	name    string
	samples []sample
}

// print writes a table in Markdown.
func (r *result) print(w io.Writer) {
	none := r.variants[0]
	_, _ = fmt.Fprintf(w, "\n%s: Postgres %s, %d clients, scale %d, %d rounds of %v; without an event %.0f transactions/s, commit p99 %s, %.0f bytes of WAL each\n\n",
		r.server, r.postgres, r.clients, r.scale, r.rounds, r.round, median(of(none.samples, rate)), p99(none).Round(time.Microsecond), median(of(none.samples, wal)))
	_, _ = fmt.Fprint(w, "| event | throughput | middle half of the rounds | server's CPU | client's CPU | commit p50 | commit p99 | WAL, bytes more |\n",
		"|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, v := range r.variants[1:] {
		throughput := v.times(none, rate)
		more := make([]float64, len(v.samples))
		for i, s := range v.samples {
			more[i] = s.wal - none.samples[i].wal
		}
		_, _ = fmt.Fprintf(w, "| %s | %.3f | %.3f to %.3f | %.2f | %.2f | %.2f | %.2f | %.0f |\n", v.name,
			median(throughput), quantile(throughput, 0.25), quantile(throughput, 0.75),
			median(v.times(none, func(s sample) float64 { return s.server })), median(v.times(none, func(s sample) float64 { return s.client })),
			float64(commit(v, 0.5))/float64(commit(none, 0.5)), float64(p99(v))/float64(p99(none)), median(more))
	}
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

func p99(v *series) time.Duration { return commit(v, 0.99) }

// commit returns the median over the rounds of a quantile of the commits' durations: a round that
// was disturbed counts once, however long its commits took.
func commit(v *series, q float64) time.Duration {
	return time.Duration(median(of(v.samples, func(s sample) float64 {
		durations := make([]float64, len(s.commits))
		for i, d := range s.commits {
			durations[i] = float64(d)
		}
		return quantile(durations, q)
	})))
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value that a share q of values is not above.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
