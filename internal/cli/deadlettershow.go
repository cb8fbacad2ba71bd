package cli

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A deadLetterObject is a dead letter as JSON.
type deadLetterObject struct {
	Partition  int32     `json:"partition"`
	Offset     int64     `json:"offset"`
	PutAsideAt time.Time `json:"put_aside_at"`
	Reason     string    `json:"reason"`

	Topic string   `json:"topic,omitempty"` // that the record was meant for
	Table string   `json:"table,omitempty"` // of a row that could not become a record
	ID    string   `json:"id,omitempty"`
	Key   jsonText `json:"key"`

	Slot      string `json:"slot"`
	CommitLSN string `json:"commit_lsn"`
	Row       int    `json:"row"` // index in its transaction

	Timestamp  time.Time     `json:"timestamp"` // of the record
	ValueBytes int           `json:"value_bytes"`
	Value      *jsonText     `json:"value,omitempty"`
	Headers    []headerEntry `json:"headers,omitempty"`
	Columns    []headerEntry `json:"columns,omitempty"` // of a row

	Truncated string `json:"truncated,omitempty"` // sizes of the fields that were left out

	ResentAt *time.Time `json:"resent_at,omitempty"`
	Parked   bool       `json:"parked,omitempty"` // its key is parked, and no release has sent it

	Discarded bool `json:"discarded,omitempty"`

	ParkedID string `json:"parked_id,omitempty"` // of the key, if it is or was parked

	ReleaseUnknown bool `json:"release_unknown,omitempty"` // whether its key, which was parked, was released
}

func (l *deadLetters) object(dead *deadletter.DeadLetter) *deadLetterObject {
	o := &deadLetterObject{
		Partition: dead.Partition, Offset: dead.Offset, PutAsideAt: dead.At, Reason: dead.Reason,
		Topic: dead.Record.Topic, Table: dead.Table, ID: dead.EventID(l.cfg.Outbox.Columns.ID), Key: dead.Record.Key,
		Slot: dead.Slot, CommitLSN: dead.LSN.String(), Row: dead.Index,
		Timestamp: dead.Record.Timestamp.UTC(), ValueBytes: dead.Size,
		Truncated: dead.Truncated, Headers: entries(dead.Record.Headers), Columns: entries(dead.Columns), Parked: dead.Waiting && !dead.Passed, Discarded: l.isDiscarded(dead),
	}
	if dead.Parked != nil {
		o.ParkedID, o.ReleaseUnknown = dead.Parked.Parking, (dead.Lost || dead.Elsewhere) && dead.Resent.IsZero()
	}
	if !dead.Resent.IsZero() {
		o.ResentAt = &dead.Resent
	}
	return o
}

// printLine prints a dead letter for a list.
func (l *deadLetters) printLine(dead *deadletter.DeadLetter) {
	id := ""
	if known := dead.EventID(l.cfg.Outbox.Columns.ID); known != "" {
		id = ", id " + oneLine(known)
	}
	fmt.Fprintf(l.stdout, "%s  %s  %s, key %s%s\n", dead.PartitionOffset, at(dead.At), oneLine(destination(dead)), visible(dead.Record.Key), id)
	fmt.Fprintf(l.stdout, "    %s%s\n    %s\n", l.origin(dead), l.state(dead), oneLine(dead.Reason))
	if dead.Truncated != "" {
		fmt.Fprintf(l.stdout, "    truncated: %s\n", oneLine(dead.Truncated))
	}
}

// origin returns the transaction, row and slot of a dead letter, from its headers.
func (l *deadLetters) origin(dead *deadletter.DeadLetter) string {
	text := fmt.Sprintf("transaction %s, row %d, slot %s", dead.LSN, dead.Index, oneLine(dead.Slot))
	if dead.Slot != l.cfg.Source.Slot {
		text += " (not source.slot)"
	}
	return text
}

// state returns whether the key of a dead letter is parked, and whether the dead letter was resent, released or discarded.
func (l *deadLetters) state(dead *deadletter.DeadLetter) string {
	switch {
	case dead.Passed && l.isDiscarded(dead):
		return "; discarded, and a release has left it out; later records of its key are still parked"
	case dead.Passed:
		return "; sent by a release; later records of its key are still parked"
	case dead.Waiting && l.isDiscarded(dead):
		return "; discarded, so the release of its key leaves it out"
	case dead.Waiting:
		return "; its key is parked"
	case !dead.Resent.IsZero():
		return "; resent " + at(dead.Resent)
	case dead.Lost:
		return "; its key was parked under a position store that is lost, or under another one: whether it was released is not known (docs/park.md#after-the-loss-of-the-position-topic)"
	case dead.Elsewhere:
		return "; parked under that slot, and whether its key is still parked is known to the relay of that slot only"
	case l.isDiscarded(dead):
		return "; discarded, its key is not parked any more"
	case dead.Parked != nil:
		return "; released or discarded, its key is not parked any more"
	}
	return ""
}

// isDiscarded reports whether a dead letter of a key that is or was parked was discarded. That is forgotten some time after the key was unparked.
func (l *deadLetters) isDiscarded(dead *deadletter.DeadLetter) bool {
	return dead.Parked != nil && l.parked.HasDiscarded(&dead.DeadLetter, dead.EventID(l.cfg.Outbox.Columns.ID))
}

// printWhole prints a dead letter with all its fields. It cuts a long value.
func (l *deadLetters) printWhole(dead *deadletter.DeadLetter) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(l.stdout, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("dead letter", "%s of topic %s%s", dead.PartitionOffset, l.sending.DeadLetterTopic, l.state(dead))
	line("time", "%s", at(dead.At))
	line("reason", "%s", oneLine(dead.Reason))
	line("from", "%s", l.origin(dead))
	to := oneLine(destination(dead))
	if dead.Record.Partition != sink.AnyPartition {
		to += fmt.Sprintf(", partition %d", dead.Record.Partition)
	}
	line("to", "%s", to)
	line("timestamp", "%s", at(dead.Record.Timestamp))
	line("key", "%s", visible(dead.Record.Key))
	for _, h := range dead.Record.Headers {
		line("header", "%s: %s", oneLine(h.Key), visible(h.Value))
	}
	for _, c := range dead.Columns {
		line("column", "%s: %s", oneLine(c.Key), visible(c.Value))
	}
	if dead.Truncated != "" {
		line("truncated", "%s", oneLine(dead.Truncated))
	}
	line("value", "%s", visibleUpTo(dead.Record.Value, shownValue))
	if dead.Size > shownValue {
		fmt.Fprintln(l.stderr, "the value is longer: --raw writes all of it")
	}
}
