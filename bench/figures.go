package main

import (
	"maps"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
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
	return bench.Median(values...)
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
	return bench.Median(values...), len(values) > 0
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
func rowRate(r bench.DrainResult) float64 {
	if r.Streaming <= 0 {
		return r.Rate()
	}
	return r.StreamingRate()
}

// cpuPerMillion is in seconds.
func cpuPerMillion(r bench.DrainResult) float64 {
	if r.CPUStreaming == 0 {
		return r.CPUPerMillion().Seconds()
	}
	return r.CPUStreaming.Seconds() / float64(r.Rows) * 1e6
}

func drainMemory(r bench.DrainResult) float64 { return megabytes(r.PeakRSS) }

// The figures of a latency measurement, in milliseconds but for cores.

func p50(r bench.LatencyResult) float64  { return milliseconds(r.FromSchedule.P50) }
func p90(r bench.LatencyResult) float64  { return milliseconds(r.FromSchedule.P90) }
func p99(r bench.LatencyResult) float64  { return milliseconds(r.FromSchedule.P99) }
func p999(r bench.LatencyResult) float64 { return milliseconds(r.FromSchedule.P999) }
func slowest(r bench.LatencyResult) float64 {
	return milliseconds(r.FromSchedule.Max)
}

// cores is the share of a core that the contender took, in percent.
func cores(r bench.LatencyResult) float64 { return 100 * r.CPU.Seconds() / r.Elapsed.Seconds() }

func latencyMemory(r bench.LatencyResult) float64 { return megabytes(r.PeakRSS) }
