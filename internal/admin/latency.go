package admin

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// The bounds of native buckets differ by a factor of 2^(1/8) = 1.09, which is the maximum error of a quantile.
const (
	bucketFactor = 1.1
	bucketSchema = 3 // that bucketFactor results in: 2^(2^-3)
)

// classicBuckets returns bounds in seconds, for servers without native histograms.
func classicBuckets() []float64 {
	return []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800}
}

// A latency is a histogram of durations that also returns the distribution of new ones.
type latency struct {
	histogram prometheus.Histogram
	counts    map[int]int64 // by bucket, at the last call of recent
}

func newLatency(m metric) *latency {
	return &latency{histogram: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: m.name, Help: m.help, Buckets: classicBuckets(), NativeHistogramBucketFactor: bucketFactor,
	})}
}

// observe adds a duration. It may be called from any goroutine and does not block. The trace id, unless it is empty,
// becomes an exemplar for scrapers that use OpenMetrics.
func (l *latency) observe(d time.Duration, traceID string) {
	if traceID == "" {
		l.histogram.Observe(d.Seconds())
		return
	}
	if o, ok := l.histogram.(prometheus.ExemplarObserver); ok {
		o.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": traceID})
	}
}

// recent returns the durations since its last call.
func (l *latency) recent() distribution {
	var m dto.Metric
	if err := l.histogram.Write(&m); err != nil {
		return nil
	}
	now := bucketsOf(m.GetHistogram())
	fresh := make(distribution)
	for i, n := range now {
		if n > l.counts[i] {
			fresh[i] = n - l.counts[i]
		}
	}
	l.counts = now
	return fresh
}

// zeroBucket is the index of durations that are too short for the other buckets.
const zeroBucket = math.MinInt

// bucketsOf returns the counts of the native buckets by their index:
// https://prometheus.io/docs/specs/native_histograms/
func bucketsOf(h *dto.Histogram) map[int]int64 {
	counts := map[int]int64{zeroBucket: int64(h.GetZeroCount())}
	index, at, count := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[at]
			counts[index] = count
			index++
			at++
		}
	}
	return counts
}

// A distribution is the number of durations in each bucket.
type distribution map[int]int64

// add adds other to d.
func (d distribution) add(other distribution) {
	for i, n := range other {
		d[i] += n
	}
}

// quantile returns the q-quantile in seconds, nil if there are no durations. It assumes that the durations in a bucket
// are distributed evenly on a logarithmic scale.
func (d distribution) quantile(q float64) *float64 {
	var total int64
	for _, n := range d {
		total += n
	}
	if total == 0 {
		return nil
	}
	rank, value := q*float64(total), 0.0
	for _, i := range slices.Sorted(maps.Keys(d)) {
		n := float64(d[i])
		if n > 0 && i != zeroBucket {
			value = math.Exp2((float64(i-1) + min(1, rank/n)) / (1 << bucketSchema))
		}
		if rank -= n; rank <= 0 {
			break
		}
	}
	return &value
}
