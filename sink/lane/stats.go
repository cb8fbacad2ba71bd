package lane

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Rows may choose any number of destinations, so what is kept of them is limited.
const (
	// maxDestinations is the number of destinations with counters of their own, and of those without records that a Writer
	// keeps.
	maxDestinations = 1000

	// maxWritable is how many other destinations are remembered as writable.
	maxWritable = 1 << 16
)

type destinationCounters struct {
	records, bytes atomic.Int64
}

// Reconnected counts a connection that has replaced a lost one.
func (b *Base) Reconnected() { b.reconnects.Add(1) }

// ConnectionLost notes that a connection of a pool broke, so that the next one counts as its replacement. Connections that
// break together count once.
func (b *Base) ConnectionLost() { b.lost.Store(true) }

// ConnectionMade notes that a pool has made a connection.
func (b *Base) ConnectionMade() {
	if b.lost.Swap(false) {
		b.Reconnected()
	}
}

// RecordError notes an error that is retried. Its text has no part of a record.
func (b *Base) RecordError(err error) { b.recordError(err.Error()) }

func (b *Base) recordError(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastError, b.lastErrorAt = text, time.Now()
}

// counters returns the counters of a destination, or nil if nothing was written to it.
func (b *Base) counters(name string) *destinationCounters {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.destinations[name]; d != nil {
		return d
	}
	if _, ok := b.writable[maphash.String(b.seed, name)]; ok {
		return &b.others
	}
	return nil
}

// written returns the counters of a destination to which a record was written.
func (b *Base) written(name string) *destinationCounters {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.destinations[name]; d != nil {
		return d
	}
	if len(b.destinations) < maxDestinations {
		d := new(destinationCounters)
		b.destinations[name] = d
		return d
	}
	hash := maphash.String(b.seed, name)
	MakeRoom(b.writable, hash, maxWritable)
	b.writable[hash] = struct{}{}
	return &b.others
}

// MakeRoom removes any entry of m if m has limit entries and none with the key k, which is added next.
func MakeRoom[K comparable, V any](m map[K]V, k K, limit int) {
	if _, ok := m[k]; ok || len(m) < limit {
		return
	}
	for other := range m {
		delete(m, other)
		return
	}
}

func (b *Base) setWriter(w *Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = w
}

// Stat returns a snapshot for [sink.Sink].
func (b *Base) Stat() sink.Stat {
	st, w := b.snapshot()
	oldest := b.outage.stall(time.Now(), b.options.ReachAdvice)
	if w != nil {
		if t := w.addStat(&st); oldest.since.IsZero() || !t.since.IsZero() && t.since.Before(oldest.since) {
			oldest = t
		}
	}
	st.StalledSince, st.StallReason, st.StallAdvice = oldest.since, oldest.text(), oldest.advice
	if oldest.missing {
		st.StallMissing = oldest.destination
	}
	return st
}

func (b *Base) snapshot() (sink.Stat, *Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := sink.Stat{
		Topics:        make(map[string]sink.TopicStat, len(b.destinations)+1),
		WindowRecords: b.options.WindowRecords,
		WindowBytes:   b.options.WindowBytes,
		Retries:       b.retries.Load(),
		Reconnects:    b.reconnects.Load(),
		LastError:     b.lastError,
		LastErrorAt:   b.lastErrorAt,
	}
	for name, d := range b.destinations {
		st.Topics[name] = sink.TopicStat{Records: d.records.Load(), Bytes: d.bytes.Load()}
	}
	if n := b.others.records.Load(); n > 0 {
		of := st.Topics[sink.OtherTopics]
		st.Topics[sink.OtherTopics] = sink.TopicStat{Records: of.Records + n, Bytes: of.Bytes + b.others.bytes.Load()}
	}
	return st, b.current
}
