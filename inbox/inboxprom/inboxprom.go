// Package inboxprom exports the counters of an [inbox.Processor] as Prometheus metrics.
//
//	registry.MustRegister(inboxprom.New(processor, "notifications"))
//
// Each metric has a label type for the event type. Its values are the types with a handler, and the
// empty string for all other types, so the number of time series does not depend on the topics. The
// gauges are about the whole consumer: every instance reports the same values.
package inboxprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// New returns a collector for p. Its metrics have the label consumer.
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
	{"duplicates_total", "Events that were already handled or waiting when they arrived.", func(s inbox.TypeStat) uint64 { return s.Duplicates }},
	{"deferred_total", "Events stored behind an earlier event of their key.", func(s inbox.TypeStat) uint64 { return s.Deferred }},
	{"ignored_total", "Events skipped because their type has no handler.", func(s inbox.TypeStat) uint64 { return s.Ignored }},
	{"failures_total", "Failed attempts.", func(s inbox.TypeStat) uint64 { return s.Failures }},
	{"retries_total", "Attempts after the first one of an event.", func(s inbox.TypeStat) uint64 { return s.Retries }},
	{"parked_total", "Events parked until you retry or discard them.", func(s inbox.TypeStat) uint64 { return s.Parked }},
}

//nolint:gochecknoglobals // a table
var gauges = []struct {
	name, help string
	value      func(inbox.Backlog) float64
}{
	{"waiting_events", "Events that wait for an attempt or behind another event.", func(b inbox.Backlog) float64 { return float64(b.Waiting) }},
	{"parked_events", "Events that are parked now.", func(b inbox.Backlog) float64 { return float64(b.Parked) }},
	{"oldest_waiting_seconds", "Time since the oldest waiting event arrived.", func(b inbox.Backlog) float64 { return b.OldestWaiting.Seconds() }},
	{"oldest_parked_seconds", "Time since the oldest parked event arrived.", func(b inbox.Backlog) float64 { return b.OldestParked.Seconds() }},
}

//nolint:gochecknoglobals // a table
var histograms = []struct {
	name, help string
	value      func(inbox.TypeStat) inbox.Histogram
}{
	{"attempt_seconds", "Duration of attempts, including the transaction.", func(s inbox.TypeStat) inbox.Histogram { return s.Duration }},
	{"age_seconds", "Time from the record's timestamp to the commit of the effects.", func(s inbox.TypeStat) inbox.Histogram { return s.Age }},
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
			out <- prometheus.MustNewConstMetric(next(), prometheus.GaugeValue, m.value(s.Backlog), name)
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
