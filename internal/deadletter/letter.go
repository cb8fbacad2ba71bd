package deadletter

import (
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Letter is a dead letter in its place.
type Letter struct {
	Place
	encode.DeadLetter
	Size   int       // of the value in bytes, also where that is left out
	Resent time.Time // when it was sent again at last; zero: never
}

// A Filter is which letters are meant: those for which everything holds that is not empty.
type Filter struct {
	Places []Place
	Topic  string    // where the record was to go; a row was to go nowhere yet
	Reason string    // part of the reason, in whatever letters
	Since  time.Time // put aside then or later
	Resent bool      // also those that were sent again
}

// admits reports whether f means l, as far as that does not depend on its place or its mark.
func (f *Filter) admits(l *encode.DeadLetter) bool {
	return (f.Topic == "" || l.Record.Topic == f.Topic) &&
		(f.Reason == "" || strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason))) &&
		!l.At.Before(f.Since)
}

// ID returns the event's id: of a record the header, of a row the column of that name, encoded as
// it is; empty if there is none.
func (l *Letter) ID(column string) string {
	name, fields := encode.IDHeader, l.Record.Headers
	if l.IsRow() {
		name, fields = column, l.Columns
	}
	for _, f := range fields {
		if f.Key == name {
			return string(f.Value)
		}
	}
	return ""
}

func letterOf(stored *sink.StoredRecord) (*Letter, bool) {
	parsed, ok := encode.ParseDeadLetter(&stored.Record)
	if !ok {
		return nil, false
	}
	return &Letter{
		Place: Place{stored.Partition, stored.Offset}, DeadLetter: *parsed, Size: len(stored.Value),
	}, true
}
