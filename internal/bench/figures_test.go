package bench

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

func itself(x float64) float64 { return x }

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		s    series[float64]
		want float64
	}{
		{nil, 0},
		{series[float64]{2: 7}, 7},
		{series[float64]{1: 9, 2: 1}, 5},
		{series[float64]{1: 9, 2: 1, 3: 2}, 2},
	} {
		if got := median(c.s, itself); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.s, got, c.want)
		}
	}
}

// TestRatioIsWithinARun simulates a machine that becomes ten times slower in the last two runs. The ratio of the
// medians would be 100 ÷ 20.
func TestRatioIsWithinARun(t *testing.T) {
	ours := series[float64]{1: 100, 2: 100, 3: 10, 4: 10, 5: 77}
	theirs := series[float64]{1: 200, 2: 200, 3: 20, 4: 20, 6: 1}
	if got, ok := ratio(ours, theirs, itself); got != 0.5 || !ok {
		t.Errorf("ratio = %v, %v, want 0.5", got, ok)
	}
	if got, ok := ratio(ours, series[float64]{6: 1}, itself); ok {
		t.Errorf("ratio without a common run = %v", got)
	}
	if got, ok := ratio(ours, series[float64]{1: 0}, itself); ok {
		t.Errorf("ratio to nothing = %v", got)
	}
}

func TestHighest(t *testing.T) {
	if got := highest(series[float64]{1: 3, 2: 5, 3: 4}, itself); got != 5 {
		t.Errorf("highest = %v, want 5", got)
	}
}

func TestCPUPerMillion(t *testing.T) {
	r := measure.DrainResult{Rows: 500_000, CPU: 3 * time.Second, CPUStreaming: 2 * time.Second}
	if got := cpuPerMillion(r); got != 4 {
		t.Errorf("cpuPerMillion = %v, want 4", got)
	}
	r.CPUStreaming = 0
	if got := cpuPerMillion(r); got != 6 {
		t.Errorf("cpuPerMillion without the streaming part = %v, want 6", got)
	}
}

func TestRowRate(t *testing.T) {
	r := measure.DrainResult{Rows: 1000, Elapsed: 2 * time.Second, Streaming: time.Second}
	if got := rowRate(r); got != 1000 {
		t.Errorf("rowRate = %v, want 1000", got)
	}
	r.Streaming = 0
	if got := rowRate(r); got != 500 {
		t.Errorf("rowRate in one piece = %v, want 500", got)
	}
}

func TestText(t *testing.T) {
	for got, want := range map[string]string{
		size2text(200): "200 B", size2text(10_000): "10 kB", size2text(1500): "1500 B",
		figure(0): "0.00", figure(1.234): "1.23", figure(12.34): "12.3", figure(99.96): "100.0", figure(123456.7): "123,457",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
