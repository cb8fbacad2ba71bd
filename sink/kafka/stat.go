package kafka

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// counters are the part of [sink.Stat] that outlives producers.
type counters struct {
	retries    atomic.Int64 // batches that were sent again
	reconnects atomic.Int64
	restamped  atomic.Int64 // records that got a sink.TimestampHeader
	renewals   atomic.Int64 // how often numbering began anew because a broker had lost track

	mu      sync.Mutex
	topics  map[string]*topicCounters
	last    string
	lastAt  time.Time
	current *producer
}

type topicCounters struct {
	records, bytes atomic.Int64
}

func (c *counters) topic(name string) *topicCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		t = new(topicCounters)
		c.topics[name] = t
	}
	return t
}

func (c *counters) producer(p *producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = p
}

// failed takes note of an error that will be retried.
func (c *counters) failed(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.lastAt = text, time.Now()
}

func (c *counters) stat() (sink.Stat, *producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := sink.Stat{
		Topics:             make(map[string]sink.TopicStat, len(c.topics)),
		Retries:            c.retries.Load(),
		Reconnects:         c.reconnects.Load(),
		DuplicatesPossible: c.renewals.Load(),
		LastError:          c.last,
		LastErrorAt:        c.lastAt,
	}
	for name, t := range c.topics {
		s.Topics[name] = sink.TopicStat{Records: t.records.Load(), Bytes: t.bytes.Load()}
	}
	return s, c.current
}
