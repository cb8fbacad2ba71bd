// Package histogram has a histogram of durations with fixed memory and a relative error of at most 1/64.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

// A histogram has 2^subBits buckets per power of two, so the relative error is at most 1/64.
const (
	subBits = 6
	buckets = (36 - subBits + 1) << subBits // up to 2^36 µs, 19 hours
)

// Forever is the end of the longest durations, for [Histogram.Share].
const Forever = time.Duration(math.MaxInt64)

// A Histogram counts durations with a precision of a microsecond or 1/64, whichever is larger. The zero value
// is empty. A copy is independent. It is not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint32
	n      uint64
	max    time.Duration
}

// Record counts d. A negative duration counts as zero.
func (h *Histogram) Record(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

// Add adds the counts of o.
func (h *Histogram) Add(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count returns the number of recorded durations.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the exact maximum, or 0 if the histogram is empty.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the q-quantile: the share q of the durations is not longer. It returns 0 if the histogram
// is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	left := uint64(q * float64(h.n))
	for i, c := range h.counts {
		if uint64(c) > left {
			return min(upper(i), h.max)
		}
		left -= uint64(c)
	}
	return h.max
}

// Share returns the share of durations between from and to, with the precision of a bucket. It returns 0 if
// the histogram is empty.
func (h *Histogram) Share(from, to time.Duration) float64 {
	end := buckets
	if to < Forever {
		end = bucket(to)
	}
	var n uint64
	for _, c := range h.counts[bucket(from):end] {
		n += uint64(c)
	}
	return float64(n) / float64(max(1, h.n))
}

// bucket returns the bucket of d. Each microsecond below 2^subBits has its own.
func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-subBits-1)
	return min(shift<<subBits+int(us>>shift), buckets-1)
}

// upper returns the upper bound of bucket i.
func upper(i int) time.Duration {
	shift := max(0, i>>subBits-1)
	us := int64(i-shift<<subBits+1) << shift
	return time.Duration(us) * time.Microsecond
}
