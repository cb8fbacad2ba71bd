package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A letterObject is a dead letter as JSON.
type letterObject struct {
	Partition  int32     `json:"partition"`
	Offset     int64     `json:"offset"`
	PutAsideAt time.Time `json:"put_aside_at"`
	Reason     string    `json:"reason"`

	Topic string   `json:"topic,omitempty"` // where the record was to go
	Table string   `json:"table,omitempty"` // of a row that became no record
	ID    string   `json:"id,omitempty"`
	Key   jsonText `json:"key"`

	Slot      string `json:"slot"`
	CommitLSN string `json:"commit_lsn"`
	Row       int    `json:"row"` // in its transaction, from 0

	Timestamp  time.Time     `json:"timestamp"` // of the record
	ValueBytes int           `json:"value_bytes"`
	Value      *jsonText     `json:"value,omitempty"`
	Headers    []headerEntry `json:"headers,omitempty"`
	Columns    []headerEntry `json:"columns,omitempty"` // of a row

	ResentAt *time.Time `json:"resent_at,omitempty"`
}

type headerEntry struct {
	Name  string   `json:"name"`
	Value jsonText `json:"value"`
}

// A jsonText is bytes that are text most of the time.
type jsonText []byte

// MarshalJSON writes a string; {"base64": …} where the bytes are no text; null for nil.
func (t jsonText) MarshalJSON() ([]byte, error) {
	switch {
	case t == nil:
		return []byte("null"), nil
	case utf8.Valid(t):
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": t})
}

func (l *letters) object(letter *deadletter.Letter) *letterObject {
	o := &letterObject{
		Partition: letter.Partition, Offset: letter.Offset, PutAsideAt: letter.At, Reason: letter.Reason,
		Topic: letter.Record.Topic, Table: letter.Table, ID: letter.ID(l.cfg.Outbox.Columns.ID), Key: letter.Record.Key,
		Slot: letter.Slot, CommitLSN: letter.LSN.String(), Row: letter.Index,
		Timestamp: letter.Record.Timestamp.UTC(), ValueBytes: letter.Size,
		Headers: entries(letter.Record.Headers), Columns: entries(letter.Columns),
	}
	if !letter.Resent.IsZero() {
		o.ResentAt = &letter.Resent
	}
	return o
}

func entries(headers []sink.Header) []headerEntry {
	var all []headerEntry
	for _, h := range headers {
		all = append(all, headerEntry{Name: h.Key, Value: h.Value})
	}
	return all
}

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printLine prints a letter in short.
func (l *letters) printLine(letter *deadletter.Letter) {
	id := ""
	if known := letter.ID(l.cfg.Outbox.Columns.ID); known != "" {
		id = ", id " + oneLine(known)
	}
	fmt.Fprintf(l.stdout, "%s  %s  %s, key %s%s\n", letter.Place, at(letter.At), oneLine(destination(letter)), visible(letter.Record.Key), id)
	fmt.Fprintf(l.stdout, "    transaction %s, row %d, slot %s%s\n    %s\n", letter.LSN, letter.Index, oneLine(letter.Slot), resent(letter), oneLine(letter.Reason))
}

func resent(letter *deadletter.Letter) string {
	if letter.Resent.IsZero() {
		return ""
	}
	return "; sent again " + at(letter.Resent)
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// oneLine is text that came from elsewhere as it may stand in a line.
func oneLine(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// shownValue is how much of a value is shown.
const shownValue = 4096

// printWhole prints all of a letter, and of a long value the beginning.
func (l *letters) printWhole(letter *deadletter.Letter) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(l.stdout, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("letter", "%s of topic %s%s", letter.Place, l.sending.DeadLetterTopic, resent(letter))
	line("put aside", "%s", at(letter.At))
	line("reason", "%s", oneLine(letter.Reason))
	line("from", "transaction %s, row %d, slot %s", letter.LSN, letter.Index, oneLine(letter.Slot))
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
	line("value", "%s", visibleUpTo(letter.Record.Value, shownValue))
	if letter.Size > shownValue {
		fmt.Fprintln(l.stderr, "the value is longer; --raw writes all of it")
	}
}
