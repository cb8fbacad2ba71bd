package bench

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// series are the results of the runs that succeeded, by their number.
type series[T any] map[int]T

// median returns the median of a figure, the mean of the middle two if there
// is no middle one; 0 of nothing.
func median[T any](s series[T], of func(T) float64) float64 {
	var values []float64
	for _, result := range s {
		values = append(values, of(result))
	}
	return measure.Median(values...)
}

// ratio returns the median of our figure ÷ theirs within the same run, over
// the runs that both have: what disturbs a machine for a while disturbs both.
// It is false when there is no such run.
func ratio[T any](ours, theirs series[T], of func(T) float64) (float64, bool) {
	var values []float64
	for run, result := range ours {
		if other, ok := theirs[run]; ok && of(other) > 0 {
			values = append(values, of(result)/of(other))
		}
	}
	return measure.Median(values...), len(values) > 0
}

// highest returns the highest of a figure; 0 of nothing.
func highest[T any](s series[T], of func(T) float64) float64 {
	var most float64
	for result := range maps.Values(s) {
		most = max(most, of(result))
	}
	return most
}

// The figures of a drain, without its start.

// rowRate is per second. A backlog so small that it arrived in one piece has
// only its whole time.
func rowRate(r measure.DrainResult) float64 {
	if r.Streaming <= 0 {
		return r.Rate()
	}
	return r.StreamingRate()
}

// cpuPerMillion is in seconds.
func cpuPerMillion(r measure.DrainResult) float64 {
	if r.CPUStreaming == 0 {
		return r.CPUPerMillion().Seconds()
	}
	return r.CPUStreaming.Seconds() / float64(r.Rows) * 1e6
}

func drainMemory(r measure.DrainResult) float64 { return megabytes(r.PeakRSS) }

// The figures of a latency measurement, in milliseconds but for cores.

func p50(r measure.LatencyResult) float64  { return milliseconds(r.FromSchedule.P50) }
func p90(r measure.LatencyResult) float64  { return milliseconds(r.FromSchedule.P90) }
func p99(r measure.LatencyResult) float64  { return milliseconds(r.FromSchedule.P99) }
func p999(r measure.LatencyResult) float64 { return milliseconds(r.FromSchedule.P999) }
func slowest(r measure.LatencyResult) float64 {
	return milliseconds(r.FromSchedule.Max)
}

// cores is the share of a core that the contender took, in percent.
func cores(r measure.LatencyResult) float64 { return 100 * r.CPU.Seconds() / r.Elapsed.Seconds() }

func latencyMemory(r measure.LatencyResult) float64 { return megabytes(r.PeakRSS) }

// size2text writes a payload's size: 200 B, 10 kB.
func size2text(n int) string {
	if n >= 1000 && n%1000 == 0 {
		return strconv.Itoa(n/1000) + " kB"
	}
	return strconv.Itoa(n) + " B"
}

// figure writes a number with what can be told of it: three digits.
func figure(x float64) string {
	switch {
	case x >= 100:
		return terminal.Number(int(x + 0.5))
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
