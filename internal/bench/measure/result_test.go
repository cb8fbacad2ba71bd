package measure_test

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 9, 2}, 3}} {
		if got := measure.Median(c.values...); got != c.want {
			t.Errorf("Median(%v) = %g, want %g", c.values, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	if measure.Median(values...); values[0] != 3 {
		t.Error("Median has sorted the caller's slice")
	}
}

func TestDrainResult(t *testing.T) {
	r := measure.DrainResult{Rows: 200_000, Elapsed: 2 * time.Second, Streaming: time.Second, CPU: 500 * time.Millisecond}
	if r.Rate() != 100_000 || r.StreamingRate() != 200_000 || r.CPUPerMillion() != 2500*time.Millisecond {
		t.Errorf("rate %g, streaming %g, CPU %s", r.Rate(), r.StreamingRate(), r.CPUPerMillion())
	}
	if idle := (measure.IdleResult{CPU: 10 * time.Millisecond, Elapsed: 10 * time.Second}); idle.Share() != 0.001 {
		t.Errorf("share %g", idle.Share())
	}
}
