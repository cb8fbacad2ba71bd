package tracing

import (
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
)

// A Message is a record for which a span is started.
type Message struct {
	Seq       uint64 // names it in End and Fail
	Topic     string
	ID        []byte // of the event; messaging.message.id
	Key       []byte // nil: null
	Size      int    // of the value
	Tombstone bool   // the value is null
	CommitLSN pglogrepl.LSN
	Committed time.Time // by the server's clock

	Parent Context // the row's
	State  []byte  // its tracestate; nil: none
}

// maxText is the maximum size of a key, id or tracestate that a span contains. It limits a span's memory.
const maxText = 512

// A span is in progress or waits for its export. It owns its slices; the next span that uses the same
// struct reuses them.
type span struct {
	parent  Context
	id      [8]byte
	state   []byte
	topic   string
	message []byte // its id
	key     []byte
	size    int
	lsn     pglogrepl.LSN
	flags   spanFlags

	start, handed, end int64 // Unix nanoseconds: commit, taken by the producer, outcome

	partition int32
	offset    int64 // -1: not known
	broker    string
	failure   string // error.type; empty: acknowledged
	reason    string // of the failure
}

type spanFlags uint8

const (
	hasKey spanFlags = 1 << iota
	tombstone
)

// set makes s the span for m, whose record is sent now.
func (s *span) set(m *Message, now time.Time, keys bool) {
	*s = span{
		parent: m.Parent, id: newSpanID(), topic: m.Topic, size: m.Size, lsn: m.CommitLSN,
		start: min(m.Committed.UnixNano(), now.UnixNano()), handed: now.UnixNano(), offset: -1, partition: -1,
		state: text(s.state, m.State), message: text(s.message, m.ID), key: s.key[:0],
	}
	if m.Tombstone {
		s.flags |= tombstone
	}
	if keys && m.Key != nil && len(m.Key) <= maxText && utf8.Valid(m.Key) {
		s.key = append(s.key, m.Key...)
		s.flags |= hasKey
	}
}

// context returns the trace context of s, for the record.
func (s *span) context() Context {
	return Context{TraceID: s.parent.TraceID, spanID: s.id, flags: s.parent.flags & (sampled | random)}
}

// text copies src to dst, unless it is larger than maxText.
func text(dst, src []byte) []byte {
	if len(src) > maxText || !utf8.Valid(src) {
		return dst[:0]
	}
	return append(dst[:0], src...)
}

func newSpanID() (id [8]byte) {
	for id == [8]byte{} {
		n := rand.Uint64()
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}
