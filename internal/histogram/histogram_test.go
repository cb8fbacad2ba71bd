package histogram_test

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
)

func TestValuesAreKnownToOneSixtyFourth(t *testing.T) {
	for d := time.Microsecond; d < 10*time.Hour; d += 1 + d/7 {
		var h histogram.Histogram
		h.Record(d)
		h.Record(20 * time.Hour)
		got := h.Quantile(0.25)
		if got < d || got > d+d/64+time.Microsecond {
			t.Fatalf("%s is counted as %s", d, got)
		}
	}
}

// hundred returns a histogram with the values 1 ms, 2 ms, … 100 ms.
func hundred() *histogram.Histogram {
	var h, other histogram.Histogram
	for i := range 100 {
		target := &h
		if i%2 == 0 {
			target = &other
		}
		target.Record(time.Duration(i+1) * time.Millisecond)
	}
	h.Add(&other)
	return &h
}

func TestQuantiles(t *testing.T) {
	var empty histogram.Histogram
	if got := empty.Quantile(0.5); got != 0 {
		t.Errorf("median of nothing is %s", got)
	}
	h := hundred()
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 51 * time.Millisecond, 0.99: 100 * time.Millisecond, 1: 100 * time.Millisecond} {
		if got := h.Quantile(q); got < want || got > want+want/64 {
			t.Errorf("quantile %g is %s, want %s", q, got, want)
		}
	}
	if h.Count() != 100 || h.Max() != 100*time.Millisecond {
		t.Errorf("count %d, max %s", h.Count(), h.Max())
	}
}

func TestShares(t *testing.T) {
	var empty histogram.Histogram
	if got := empty.Share(0, histogram.Forever); got != 0 {
		t.Errorf("share of nothing is %g", got)
	}
	h := hundred()
	h.Record(30 * time.Hour)
	for _, c := range []struct {
		from, to time.Duration
		want     float64
	}{
		{0, time.Millisecond, 0},
		{0, 11 * time.Millisecond, 10},
		{11 * time.Millisecond, 100 * time.Hour, 90},
		{11 * time.Millisecond, histogram.Forever, 91},
	} {
		if got := h.Share(c.from, c.to) * 101; got < c.want-0.01 || got > c.want+0.01 {
			t.Errorf("from %s to %s there are %g, want %g", c.from, c.to, got, c.want)
		}
	}
}
