package bench

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// series has the results of the successful runs, by run number.
type series[T any] map[int]T

// median returns the median of a figure. For an even number of runs, it is the mean of
// the middle two; without runs, it is 0.
func median[T any](s series[T], of func(T) float64) float64 {
	var values []float64
	for _, result := range s {
		values = append(values, of(result))
	}
	return measure.Median(values...)
}

// ratio returns the median of our figure ÷ theirs over the runs that both have. It divides
// within a run, because a temporary disturbance of the machine then affects both. ok is
// false if there is no such run.
func ratio[T any](ours, theirs series[T], of func(T) float64) (float64, bool) {
	var values []float64
	for run, result := range ours {
		if other, ok := theirs[run]; ok && of(other) > 0 {
			values = append(values, of(result)/of(other))
		}
	}
	return measure.Median(values...), len(values) > 0
}

// highest returns the maximum of a figure, or 0 without runs.
func highest[T any](s series[T], of func(T) float64) float64 {
	var most float64
	for result := range maps.Values(s) {
		most = max(most, of(result))
	}
	return most
}

// The figures of a drain, without its start.

// rowRate returns rows per second of streaming. If a small backlog arrived at once, it uses
// the elapsed time.
func rowRate(r measure.DrainResult) float64 {
	if r.Streaming <= 0 {
		return r.Rate()
	}
	return r.StreamingRate()
}

// batchRate returns batches per second of streaming, or 0 if the batches are unknown.
func batchRate(r measure.DrainResult) float64 {
	return rowRate(r) * float64(r.Batches) / float64(r.Rows)
}

// rowsPerBatch returns the mean number of rows in a batch, or 0 if the batches are unknown.
func rowsPerBatch(r measure.DrainResult) float64 {
	if r.Batches == 0 {
		return 0
	}
	return float64(r.Rows) / float64(r.Batches)
}

// cpuPerMillion returns CPU seconds per million rows.
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

// cores returns the CPU usage of the contender, in percent of a core.
func cores(r measure.LatencyResult) float64 { return 100 * r.CPU.Seconds() / r.Elapsed.Seconds() }

func latencyMemory(r measure.LatencyResult) float64 { return megabytes(r.PeakRSS) }

// The figures of an outage.

// growth returns how much RSS grew during the outage, in MB.
func growth(r measure.OutageResult) float64 { return megabytes(r.During - r.Before) }

// size2text returns the size of a payload as text: 200 B, 10 kB.
func size2text(n int) string {
	if n >= 1000 && n%1000 == 0 {
		return strconv.Itoa(n/1000) + " kB"
	}
	return strconv.Itoa(n) + " B"
}

// figure returns a number with three significant digits.
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
