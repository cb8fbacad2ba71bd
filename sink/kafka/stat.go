package kafka

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Stat is a snapshot of a Client and its present Producer.
type Stat struct {
	// Topics holds every topic that was written to since Open.
	Topics map[string]TopicStat

	// InFlightRecords and InFlightBytes are what Send has taken and no broker has
	// acknowledged. Bytes are those of keys, values and headers.
	InFlightRecords int
	InFlightBytes   int

	// Retries counts batches that had to be sent again.
	Retries int64

	// Reconnects counts connections made in place of one that broke.
	Reconnects int64

	// Restamped counts records whose timestamp a topic did not take: see TimestampHeader.
	Restamped int64

	// ProducerIDs counts producer ids taken from the cluster, Renewals how often numbering
	// began anew because a broker had lost track: after each, what was unacknowledged may
	// be in the log twice. A growing number can be the only sign of a cluster losing data.
	ProducerIDs int
	Renewals    int64

	// StalledSince is since when a partition or topic has made no progress although it has
	// something to send, and StallReason why. Zero and empty if none has. What a broker has
	// refused counts at once, a request that is not answered after 5 s.
	StalledSince time.Time
	StallReason  string

	// LastError is the latest thing that went wrong and was retried, at LastErrorAt.
	LastError   string
	LastErrorAt time.Time
}

// A TopicStat is what has been acknowledged of one topic.
type TopicStat struct {
	Records int64
	Bytes   int64 // of keys, values and headers
}

// counters are the part of Stat that outlives producers.
type counters struct {
	retries    atomic.Int64
	reconnects atomic.Int64
	restamped  atomic.Int64
	renewals   atomic.Int64

	mu      sync.Mutex
	topics  map[string]*topicCounters
	last    string
	lastAt  time.Time
	current *Producer
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

func (c *counters) producer(p *Producer) {
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

func (c *counters) stat() (Stat, *Producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stat{
		Topics:      make(map[string]TopicStat, len(c.topics)),
		Retries:     c.retries.Load(),
		Reconnects:  c.reconnects.Load(),
		Restamped:   c.restamped.Load(),
		Renewals:    c.renewals.Load(),
		LastError:   c.last,
		LastErrorAt: c.lastAt,
	}
	for name, t := range c.topics {
		s.Topics[name] = TopicStat{Records: t.records.Load(), Bytes: t.bytes.Load()}
	}
	return s, c.current
}
