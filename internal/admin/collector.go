package admin

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	topicLabels = 100              // maximum number of topics with their own label
	otherTopics = sink.OtherTopics // label of all other topics
)

// A collector returns the metrics of the last sample.
type collector struct {
	last  func() *sample
	descs map[string]*prometheus.Desc // by name

	mu      sync.Mutex
	labeled map[string]struct{} // topics with their own label; none is ever removed
}

// newRegistry returns the registry of s. The relay's metrics have its name as a label; those of the process and the Go
// runtime do not.
func newRegistry(s *Server) *prometheus.Registry {
	c := &collector{last: s.last.Load, descs: make(map[string]*prometheus.Desc), labeled: make(map[string]struct{})}
	for _, m := range c.metrics() {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	registry := prometheus.NewPedanticRegistry()
	named := prometheus.WrapRegistererWith(prometheus.Labels{"name": s.cfg.Name}, registry)
	named.MustRegister(c, s.answered.histogram, s.delivery.histogram, buildInfo(s.cfg))
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.last()
	if s == nil {
		return
	}
	for _, m := range c.metrics() {
		m.values(s, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(c.descs[m.name], m.kind, value, labels...)
		})
	}
}

// records emits the records of each topic. Whether a topic has its own label is decided when it is first seen, so that a
// count never moves to another label.
func (c *collector) records(s *sample, put emit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := int64(0)
	for _, topic := range slices.Sorted(maps.Keys(s.stat.Sink.Topics)) {
		n := s.stat.Sink.Topics[topic].Records
		_, known := c.labeled[topic]
		if !known && len(c.labeled) < topicLabels && topic != otherTopics {
			c.labeled[topic] = struct{}{}
			known = true
		}
		if !known {
			others += n
			continue
		}
		put(float64(n), topic)
	}
	if others > 0 {
		put(float64(others), otherTopics)
	}
}
