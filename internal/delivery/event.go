package delivery

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// A Fate is the outcome of an event's transaction, as far as known when a record is judged.
type Fate uint8

// The fates. Finish judges the records of events that are InDoubt: a record may arrive before the response to
// its COMMIT, or the response may be lost.
const (
	Committed Fate = iota
	InDoubt
	RolledBack
	Unwritten
	Forgotten // committed, delivered and dropped with Forget: a record of it is a duplicate
)

// String returns the name of the fate.
func (f Fate) String() string {
	return [...]string{"committed", "in doubt", "rolled back", "never written", "forgotten"}[f]
}

// An Event is a row that was written.
type Event struct {
	Aggregate string // events of an aggregate are ordered
	Seq       int64  // number of the event in its aggregate, from 1
	ID        string // for messages; empty if it is not known
	Tx        uuid.UUID
	Fate      Fate

	// The expected record, as far as Record has these fields.
	Topic, Key, Value string
	Headers           []Header
}

// A Header is a header of a record.
type Header struct{ Key, Value string }

// Coordinates are the position of a record.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic[partition]@offset.
func (c Coordinates) String() string { return fmt.Sprintf("%s[%d]@%d", c.Topic, c.Partition, c.Offset) }

// A Record is a record that was read. The Checker compares key, headers and value with those of the Event; a
// caller that does not want this leaves them empty in both. The Checker does not retain the slices.
type Record struct {
	Coordinates
	Key, Value []byte
	Headers    []Header
	Damage     string // problem that the caller has found, without payload; empty: none
}

// A Sequence is consecutive events of one aggregate.
type Sequence struct {
	Aggregate string
	First     int64
	Rows      int
}

// end returns the number after the last one.
func (s Sequence) end() int64 { return s.First + int64(s.Rows) }

// A Transaction is a transaction of a writer. Without an ID it stands for several transactions with the events
// of its sequences.
type Transaction struct {
	ID        uuid.UUID
	Fate      Fate
	Sequences []Sequence
}

// UpTo returns one Transaction with the events 1 to n of each aggregate, where n is the value in committed.
func UpTo(committed map[string]int) iter.Seq[Transaction] {
	return func(yield func(Transaction) bool) {
		for _, aggregate := range slices.Sorted(maps.Keys(committed)) {
			if !yield(Transaction{Sequences: []Sequence{{aggregate, 1, committed[aggregate]}}}) {
				return
			}
		}
	}
}
