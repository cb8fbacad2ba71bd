package demo

import (
	"testing"
	"time"
)

func TestHistogramKnowsValuesToOneSixtyFourth(t *testing.T) {
	for d := time.Microsecond; d < 10*time.Hour; d += 1 + d/7 {
		var h histogram
		h.record(d)
		h.record(20 * time.Hour)
		got := h.quantile(0.25)
		if got < d || got > d+d/64+time.Microsecond {
			t.Fatalf("%s is counted as %s", d, got)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var h, other histogram
	if got := h.quantile(0.5); got != 0 {
		t.Errorf("median of nothing is %s", got)
	}
	for i := range 100 {
		target := &h
		if i%2 == 0 {
			target = &other
		}
		target.record(time.Duration(i+1) * time.Millisecond)
	}
	h.add(&other)
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 51 * time.Millisecond, 0.99: 100 * time.Millisecond, 1: 100 * time.Millisecond} {
		if got := h.quantile(q); got < want || got > want+want/64 {
			t.Errorf("quantile %g is %s, want %s", q, got, want)
		}
	}
	if h.n != 100 || h.max != 100*time.Millisecond {
		t.Errorf("n = %d, max = %s", h.n, h.max)
	}
}
