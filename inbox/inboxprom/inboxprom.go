// Package inboxprom makes Prometheus metrics of an [inbox.Processor].
//
//	registry.MustRegister(inboxprom.New(processor, "notifications"))
//
// Their label type has the types that have a handler, and the empty one for all others together, so
// their number does not depend on what is in the topics. Those of inbox_events are the consumer's
// as a whole, whichever instance is asked.
package inboxprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// New returns a collector of p's metrics, which have consumer as a label.
func New(p *inbox.Processor, consumer string) prometheus.Collector {
	c := &collector{stat: p.Stat}
	describe := func(name, help string) {
		c.descs = append(c.descs, prometheus.NewDesc("outbox_cdc_inbox_"+name, help, []string{"type"}, prometheus.Labels{"consumer": consumer}))
	}
	for _, m := range counters {
		describe(m.name, m.help)
	}
	for _, m := range gauges {
		describe(m.name, m.help)
	}
	for _, m := range histograms {
		describe(m.name, m.help)
	}
	return c
}

type collector struct {
	stat  func() inbox.Stat
	descs []*prometheus.Desc // of counters, gauges and histograms
}

//nolint:gochecknoglobals // a table
var counters = []struct {
	name, help string
	value      func(inbox.TypeStat) uint64
}{
	{"handled_total", "Events whose effects were committed.", func(s inbox.TypeStat) uint64 { return s.Handled }},
	{"duplicates_total", "Events that had been handled, or were waiting, when they came.", func(s inbox.TypeStat) uint64 { return s.Duplicates }},
	{"deferred_total", "Events that were put behind an earlier one of their key.", func(s inbox.TypeStat) uint64 { return s.Deferred }},
	{"ignored_total", "Events without a handler that were passed over.", func(s inbox.TypeStat) uint64 { return s.Ignored }},
	{"failures_total", "Attempts that failed.", func(s inbox.TypeStat) uint64 { return s.Failures }},
	{"retries_total", "Attempts after the first one of an event.", func(s inbox.TypeStat) uint64 { return s.Retries }},
	{"parked_total", "Events that were given up until a person says otherwise.", func(s inbox.TypeStat) uint64 { return s.Parked }},
}

//nolint:gochecknoglobals // a table
var gauges = []struct {
	name, help string
	value      func(inbox.Census) float64
}{
	{"waiting_events", "Events that wait for an attempt, or behind another one.", func(c inbox.Census) float64 { return float64(c.Waiting) }},
	{"parked_events", "Events that are parked.", func(c inbox.Census) float64 { return float64(c.Parked) }},
	{"oldest_waiting_seconds", "How long the oldest event has been waiting.", func(c inbox.Census) float64 { return c.OldestWaiting.Seconds() }},
	{"oldest_parked_seconds", "How long ago the oldest parked event came.", func(c inbox.Census) float64 { return c.OldestParked.Seconds() }},
}

//nolint:gochecknoglobals // a table
var histograms = []struct {
	name, help string
	value      func(inbox.TypeStat) inbox.Histogram
}{
	{"attempt_seconds", "How long attempts take, the transaction included.", func(s inbox.TypeStat) inbox.Histogram { return s.Duration }},
	{"age_seconds", "How long after the record's timestamp effects were committed.", func(s inbox.TypeStat) inbox.Histogram { return s.Age }},
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for name, s := range c.stat().Types {
		descs := c.descs
		next := func() (desc *prometheus.Desc) {
			desc, descs = descs[0], descs[1:]
			return desc
		}
		for _, m := range counters {
			out <- prometheus.MustNewConstMetric(next(), prometheus.CounterValue, float64(m.value(s)), name)
		}
		for _, m := range gauges {
			out <- prometheus.MustNewConstMetric(next(), prometheus.GaugeValue, m.value(s.Waiting), name)
		}
		for _, m := range histograms {
			out <- histogram(next(), m.value(s), name)
		}
	}
}

func histogram(desc *prometheus.Desc, h inbox.Histogram, name string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		buckets[bound.Seconds()] = h.Counts[i]
	}
	return prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets, name)
}
