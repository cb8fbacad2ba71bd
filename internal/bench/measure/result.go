package measure

import (
	"slices"
	"time"
)

// A DrainResult is one contender's way through one backlog.
type DrainResult struct {
	Contender string
	Rows      int

	// Elapsed is from the start of the process until the consumer had all rows; for a contender that
	// does not produce, until the process had ended by itself.
	Elapsed time.Duration
	// Streaming is Elapsed without what came before the contender read the slot, to some milliseconds.
	// The server's work before its first byte, which for a giant transaction is seconds, counts for
	// everybody.
	Streaming time.Duration

	CPU          time.Duration // user and system time of the process and its children, from start to exit
	CPUStreaming time.Duration // the part spent in Streaming, to 10 ms; 0 where it is not known
	PeakRSS      int64         // bytes; 0 where it is not known
	ConsumerCPU  time.Duration // of this process during Elapsed: what the measuring costs

	Verdict *Verdict // nil: nothing was produced that could be checked
}

// Rate returns rows per second over Elapsed.
func (r DrainResult) Rate() float64 { return float64(r.Rows) / r.Elapsed.Seconds() }

// StreamingRate returns rows per second over Streaming.
func (r DrainResult) StreamingRate() float64 { return float64(r.Rows) / r.Streaming.Seconds() }

// CPUPerMillion returns CPU for a million rows.
func (r DrainResult) CPUPerMillion() time.Duration {
	return time.Duration(float64(r.CPU) / float64(r.Rows) * 1e6)
}

// Quantiles are of durations, each known to 1/64 of itself.
type Quantiles struct{ P50, P90, P99, P999, Max time.Duration }

// A LatencyResult is one contender at one rate.
type LatencyResult struct {
	Contender string
	Rate      int // transactions of one row per second, as planned
	Measured  int // rows in the quantiles: without the warm-up

	// FromSchedule is from the moment a row's INSERT was due until the consumer had the record. When
	// the database or the writer is late, that counts: nobody waits for them (open loop).
	FromSchedule Quantiles
	// FromSent is from the moment the INSERT, which commits by itself, was really sent.
	FromSent Quantiles
	// WriterLate is by how much INSERTs were sent after they were due.
	WriterLate Quantiles

	CPU     time.Duration // of the process and its children while rows were written; 0 where it is not known
	Elapsed time.Duration // how long rows were written
	PeakRSS int64         // bytes; 0 where it is not known

	Verdict Verdict
}

// An IdleResult is what a contender costs that streams and has nothing to do.
type IdleResult struct {
	Contender string
	CPU       time.Duration // of the process and its children during Elapsed
	Elapsed   time.Duration
	RSS       int64 // bytes, at the end
}

// Share returns the share of one core.
func (r IdleResult) Share() float64 { return r.CPU.Seconds() / r.Elapsed.Seconds() }

// Median returns the middle of values, or the mean of the two in the middle; 0 of none.
func Median(values ...float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
