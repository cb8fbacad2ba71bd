package demo

import (
	"math/bits"
	"time"
)

// Buckets of a histogram are 2^subBits to a power of two, so a value is known to 1/64 of itself.
const (
	subBits = 6
	buckets = (36 - subBits + 1) << subBits // up to 2^36 µs, 19 hours
)

// A histogram counts durations. Its zero value is empty.
type histogram struct {
	counts [buckets]uint32
	n      uint64
	max    time.Duration
}

func (h *histogram) record(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

// add counts everything of o as well.
func (h *histogram) add(o *histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns the duration that the share q of all is not longer than; 0 without any.
func (h *histogram) quantile(q float64) time.Duration {
	left := uint64(q * float64(h.n))
	for i, c := range h.counts {
		if uint64(c) > left {
			return min(upper(i), h.max)
		}
		left -= uint64(c)
	}
	return h.max
}

// share returns the share of all that is in the buckets from (inclusive) to (exclusive); 0 without
// any.
func (h *histogram) share(from, to int) float64 {
	var n uint64
	for _, c := range h.counts[from:to] {
		n += uint64(c)
	}
	return float64(n) / float64(max(1, h.n))
}

// bucket returns the bucket of d: microseconds below 2^subBits have one each.
func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-subBits-1)
	return min(shift<<subBits+int(us>>shift), buckets-1)
}

// upper returns the end of bucket i.
func upper(i int) time.Duration {
	shift := max(0, i>>subBits-1)
	us := int64(i-shift<<subBits+1) << shift
	return time.Duration(us) * time.Microsecond
}
