package cli

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A letterObject is a dead letter as JSON.
type letterObject struct {
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
}

func (l *letters) object(letter *deadletter.DeadLetter) *letterObject {
	o := &letterObject{
		Partition: letter.Partition, Offset: letter.Offset, PutAsideAt: letter.At, Reason: letter.Reason,
		Topic: letter.Record.Topic, Table: letter.Table, ID: letter.ID(l.cfg.Outbox.Columns.ID), Key: letter.Record.Key,
		Slot: letter.Slot, CommitLSN: letter.LSN.String(), Row: letter.Index,
		Timestamp: letter.Record.Timestamp.UTC(), ValueBytes: letter.Size,
		Truncated: letter.Truncated, Headers: entries(letter.Record.Headers), Columns: entries(letter.Columns),
	}
	if !letter.Resent.IsZero() {
		o.ResentAt = &letter.Resent
	}
	return o
}

// printLine prints a dead letter for a list.
func (l *letters) printLine(letter *deadletter.DeadLetter) {
	id := ""
	if known := letter.ID(l.cfg.Outbox.Columns.ID); known != "" {
		id = ", id " + oneLine(known)
	}
	fmt.Fprintf(l.stdout, "%s  %s  %s, key %s%s\n", letter.PartitionOffset, at(letter.At), oneLine(destination(letter)), visible(letter.Record.Key), id)
	fmt.Fprintf(l.stdout, "    %s%s\n    %s\n", l.origin(letter), resent(letter), oneLine(letter.Reason))
	if letter.Truncated != "" {
		fmt.Fprintf(l.stdout, "    truncated: %s\n", oneLine(letter.Truncated))
	}
}

// origin returns the transaction, row and slot of a dead letter, from its headers.
func (l *letters) origin(letter *deadletter.DeadLetter) string {
	text := fmt.Sprintf("transaction %s, row %d, slot %s", letter.LSN, letter.Index, oneLine(letter.Slot))
	if letter.Slot != l.cfg.Source.Slot {
		text += " (of another relay)"
	}
	return text
}

func resent(letter *deadletter.DeadLetter) string {
	if letter.Resent.IsZero() {
		return ""
	}
	return "; resent " + at(letter.Resent)
}

// printWhole prints a dead letter with all its fields. It cuts a long value.
func (l *letters) printWhole(letter *deadletter.DeadLetter) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(l.stdout, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("dead letter", "%s of topic %s%s", letter.PartitionOffset, l.sending.DeadLetterTopic, resent(letter))
	line("time", "%s", at(letter.At))
	line("reason", "%s", oneLine(letter.Reason))
	line("from", "%s", l.origin(letter))
	to := oneLine(destination(letter))
	if letter.Record.Partition != sink.AnyPartition {
		to += fmt.Sprintf(", partition %d", letter.Record.Partition)
	}
	line("to", "%s", to)
	line("timestamp", "%s", at(letter.Record.Timestamp))
	line("key", "%s", visible(letter.Record.Key))
	for _, h := range letter.Record.Headers {
		line("header", "%s: %s", oneLine(h.Key), visible(h.Value))
	}
	for _, c := range letter.Columns {
		line("column", "%s: %s", oneLine(c.Key), visible(c.Value))
	}
	if letter.Truncated != "" {
		line("truncated", "%s", oneLine(letter.Truncated))
	}
	line("value", "%s", visibleUpTo(letter.Record.Value, shownValue))
	if letter.Size > shownValue {
		fmt.Fprintln(l.stderr, "the value is longer: --raw writes all of it")
	}
}
