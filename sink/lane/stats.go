package lane

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Stats are the figures of a Sink: those of its Writers, its connections and its position stores. Its methods may be
// called from any goroutine.
type Stats struct {
	options    Options
	retries    atomic.Int64
	reconnects atomic.Int64
	lost       atomic.Bool // ConnectionLost was called since ConnectionMade
	outage     outage

	mu           sync.Mutex
	destinations map[string]*destinationCounters // at most maxDestinations
	others       destinationCounters             // of all other destinations
	writable     map[uint64]struct{}             // hashes of their names, at most maxWritable
	seed         maphash.Seed                    // of writable
	lastError    string
	lastErrorAt  time.Time
	current      *Writer
}

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

// NewStats returns the Stats of a Sink, whose Writers have the given options.
func NewStats(o Options) *Stats {
	return &Stats{
		options: o.withDefaults(), destinations: make(map[string]*destinationCounters),
		writable: make(map[uint64]struct{}), seed: maphash.MakeSeed(),
	}
}

// Reconnected counts a connection that has replaced a lost one.
func (s *Stats) Reconnected() { s.reconnects.Add(1) }

// ConnectionLost notes that a connection of a pool broke, so that the next one counts as its replacement. Connections that
// break together count once.
func (s *Stats) ConnectionLost() { s.lost.Store(true) }

// ConnectionMade notes that a pool has made a connection.
func (s *Stats) ConnectionMade() {
	if s.lost.Swap(false) {
		s.Reconnected()
	}
}

// RecordError notes an error that is retried. Its text has no part of a record.
func (s *Stats) RecordError(err error) { s.recordError(err.Error()) }

func (s *Stats) recordError(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError, s.lastErrorAt = text, time.Now()
}

// counters returns the counters of a destination, or nil if nothing was written to it.
func (s *Stats) counters(name string) *destinationCounters {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.destinations[name]; d != nil {
		return d
	}
	if _, ok := s.writable[maphash.String(s.seed, name)]; ok {
		return &s.others
	}
	return nil
}

// written returns the counters of a destination to which a record was written.
func (s *Stats) written(name string) *destinationCounters {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.destinations[name]; d != nil {
		return d
	}
	if len(s.destinations) < maxDestinations {
		d := new(destinationCounters)
		s.destinations[name] = d
		return d
	}
	hash := maphash.String(s.seed, name)
	MakeRoom(s.writable, hash, maxWritable)
	s.writable[hash] = struct{}{}
	return &s.others
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

func (s *Stats) setWriter(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = w
}

// Stat returns a snapshot for [sink.Sink].
func (s *Stats) Stat() sink.Stat {
	st, w := s.snapshot()
	oldest := s.outage.stall(time.Now())
	if w != nil {
		if t := w.addStat(&st); oldest.since.IsZero() || !t.since.IsZero() && t.since.Before(oldest.since) {
			oldest = t
		}
	}
	st.StalledSince, st.StallReason = oldest.since, oldest.text()
	if oldest.missing {
		st.StallMissing, st.StallAdvice = oldest.destination, oldest.advice
	}
	return st
}

func (s *Stats) snapshot() (sink.Stat, *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := sink.Stat{
		Topics:        make(map[string]sink.TopicStat, len(s.destinations)+1),
		WindowRecords: s.options.WindowRecords,
		WindowBytes:   s.options.WindowBytes,
		Retries:       s.retries.Load(),
		Reconnects:    s.reconnects.Load(),
		LastError:     s.lastError,
		LastErrorAt:   s.lastErrorAt,
	}
	for name, d := range s.destinations {
		st.Topics[name] = sink.TopicStat{Records: d.records.Load(), Bytes: d.bytes.Load()}
	}
	if n := s.others.records.Load(); n > 0 {
		of := st.Topics[sink.OtherTopics]
		st.Topics[sink.OtherTopics] = sink.TopicStat{Records: of.Records + n, Bytes: of.Bytes + s.others.bytes.Load()}
	}
	return st, s.current
}
