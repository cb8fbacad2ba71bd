package delivery

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// A Fate is how the transaction of an event ended, as far as is known when a record is judged.
type Fate uint8

// The fates. A record of an event InDoubt is judged by Finish: it may come before the answer to its
// COMMIT, or the answer may be lost.
const (
	Committed Fate = iota
	InDoubt
	RolledBack
	Unwritten
	Forgotten // committed, delivered long ago, and dropped with Forget: its record is a duplicate
)

// String returns the fate's name.
func (f Fate) String() string {
	return [...]string{"committed", "in doubt", "rolled back", "never written", "forgotten"}[f]
}

// An Event is a row as it was written.
type Event struct {
	Aggregate string // what order is kept for
	Seq       int64  // the event's number within the aggregate, from 1
	ID        string // for messages; empty if it is not known
	Tx        uuid.UUID
	Fate      Fate

	// What its record must look like, as far as Record has the same.
	Topic, Key, Value string
	Headers           []Header
}

// A Header is a record's header.
type Header struct{ Key, Value string }

// Coordinates say where a record is.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic[partition]@offset.
func (c Coordinates) String() string { return fmt.Sprintf("%s[%d]@%d", c.Topic, c.Partition, c.Offset) }

// A Record is what a reader sees. Key, headers and value are compared with those of its event: a caller
// that knows them to be right, or does not know what they must be, leaves them out of both. Its slices
// are used during the call only.
type Record struct {
	Coordinates
	Key, Value []byte
	Headers    []Header
	Damage     string // what the caller has found to be wrong; never a payload
}

// A Span is consecutive events of one aggregate.
type Span struct {
	Aggregate string
	First     int64
	Rows      int
}

// end returns the number behind the last one.
func (s Span) end() int64 { return s.First + int64(s.Rows) }

// A Transaction is what a writer has written. One without an ID stands for several: its events are
// those of all its spans.
type Transaction struct {
	ID    uuid.UUID
	Fate  Fate
	Spans []Span
}

// UpTo returns what was written if each aggregate has so many committed events.
func UpTo(committed map[string]int) iter.Seq[Transaction] {
	return func(yield func(Transaction) bool) {
		for _, aggregate := range slices.Sorted(maps.Keys(committed)) {
			if !yield(Transaction{Spans: []Span{{aggregate, 1, committed[aggregate]}}}) {
				return
			}
		}
	}
}
