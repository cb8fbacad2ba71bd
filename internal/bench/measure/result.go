package measure

import (
	"slices"
	"time"
)

// A DrainResult is the result of draining a Backlog with a contender.
type DrainResult struct {
	Contender string
	Rows      int
	Batches   int // that the records were written in; 0: the contender or the broker has none

	// Elapsed is the time from the start of the process until the consumer had all rows or, for a
	// contender that does not produce records, until the process ended.
	Elapsed time.Duration
	// Streaming is Elapsed without the time before the contender read the slot, with a precision of some
	// milliseconds. It includes the time until the server sends the first byte, which is seconds for a
	// giant transaction.
	Streaming time.Duration

	CPU          time.Duration // user and system time of the process and its children, from start to exit
	CPUStreaming time.Duration // the part of CPU during Streaming, to 10 ms; 0: unknown
	PeakRSS      int64         // bytes; 0: unknown
	ConsumerCPU  time.Duration // CPU time of this process during Elapsed: the cost of measuring

	Verdict *Verdict // nil: the contender produced no records
}

// Rate returns rows per second over Elapsed.
func (r DrainResult) Rate() float64 { return float64(r.Rows) / r.Elapsed.Seconds() }

// StreamingRate returns rows per second over Streaming.
func (r DrainResult) StreamingRate() float64 { return float64(r.Rows) / r.Streaming.Seconds() }

// CPUPerMillion returns CPU for a million rows.
func (r DrainResult) CPUPerMillion() time.Duration {
	return time.Duration(float64(r.CPU) / float64(r.Rows) * 1e6)
}

// Quantiles are quantiles of durations, with a relative error of at most 1/64.
type Quantiles struct{ P50, P90, P99, P999, Max time.Duration }

// A LatencyResult is the latency of a contender at a rate.
type LatencyResult struct {
	Contender string
	Rate      int // transactions of one row per second, as planned
	Measured  int // rows in the quantiles: without the warm-up

	// FromSchedule is the time from when the INSERT was due until the consumer had the record. It
	// includes delays of the database and the writer (open loop).
	FromSchedule Quantiles
	// FromSent is the time from when the INSERT, which commits by itself, was sent.
	FromSent Quantiles
	// WriterLate is the delay between when INSERTs were due and when they were sent.
	WriterLate Quantiles

	CPU     time.Duration // of the process and its children while rows were written; 0: unknown
	Elapsed time.Duration // time during which rows were written
	PeakRSS int64         // bytes; 0: unknown

	Verdict Verdict
}

// An IdleResult is the cost of a contender that streams without rows.
type IdleResult struct {
	Contender string
	CPU       time.Duration // of the process and its children during Elapsed
	Elapsed   time.Duration
	RSS       int64 // bytes, at the end
}

// Share returns the share of one core.
func (r IdleResult) Share() float64 { return r.CPU.Seconds() / r.Elapsed.Seconds() }

// Median returns the median of values, or 0 without values.
func Median(values ...float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
