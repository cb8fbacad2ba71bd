package encode

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A DeadLetter is a record that the broker has rejected, or a row or message that could not become a
// record.
type DeadLetter struct {
	// Record is the rejected record, with its Partition if that is known. For a row it has the key,
	// the payload and the timestamp; for a message, the content and the timestamp. Topic is then
	// empty.
	Record sink.Record

	Reason string
	Slot   string
	LSN    pglogrepl.LSN // commit LSN of its transaction
	Index  int           // index of the row in the transaction, from 0
	At     time.Time     // when the dead letter was made

	Table   string        // of a row, or "message " and the prefix; empty: a record
	Columns []sink.Header // of a row: all columns but the payload in text format, nil for NULL

	// Parked is set if the key of the record was parked.
	Parked *Parked

	// Truncated has the sizes of the value, key, columns and headers that were left out because the
	// dead letter was too large for its topic. Empty: nothing was left out.
	Truncated string
}

// ParseDeadLetter parses a record made by [Router.DeadRow], [Router.DeadMessage], [DeadRecord] or
// [TruncateDeadLetter]. ok is false for any other record in a dead-letter topic. That includes records
// whose dead-letter headers are repeated or unknown. Not every broker keeps the order of headers, so it
// does not matter. ParseDeadLetter cannot know who wrote rec. The result aliases rec.
func ParseDeadLetter(rec *sink.Record) (l *DeadLetter, ok bool) {
	l = &DeadLetter{Record: *rec}
	l.Record.Topic, l.Record.Partition, l.Record.Headers = "", sink.AnyPartition, nil
	found := make(map[string]bool)
	for _, h := range l.restoreTimestamp(rec.Headers) {
		if !isDeadLetterHeader(h) {
			l.Record.Headers = append(l.Record.Headers, h)
			continue
		}
		if _, twice := found[h.Key]; twice {
			return nil, false
		}
		if name, isColumn := strings.CutPrefix(h.Key, DeadLetterColumn); isColumn {
			found[h.Key] = true
			l.Columns = append(l.Columns, sink.Header{Key: name, Value: h.Value})
			continue
		}
		found[h.Key] = l.read(h.Key, string(h.Value))
	}
	for _, needed := range []string{DeadLetterReason, DeadLetterLSN, DeadLetterIndex, DeadLetterAt} {
		if !found[needed] {
			return nil, false
		}
	}
	l.Record.Headers = l.restoreTimestamp(l.Record.Headers)
	return l, (l.Table == "") != (l.Record.Topic == "")
}

func isDeadLetterHeader(h sink.Header) bool { return strings.HasPrefix(h.Key, deadLetterPrefix) }

// read parses one header, and reports whether it is valid.
func (l *DeadLetter) read(name, value string) bool {
	var err error
	switch name {
	case DeadLetterReason:
		l.Reason = value
	case DeadLetterTopic:
		l.Record.Topic = value
	case DeadLetterPartition:
		var n int64
		n, err = strconv.ParseInt(value, 10, 32)
		l.Record.Partition = int32(n)
	case DeadLetterTable:
		l.Table = value
	case DeadLetterSlot:
		l.Slot = value
	case DeadLetterLSN:
		l.LSN, err = pglogrepl.ParseLSN(value)
	case DeadLetterIndex:
		l.Index, err = strconv.Atoi(value)
	case DeadLetterTruncated:
		l.Truncated = value
	case DeadLetterParked:
		l.Parked, err = parseParked(value)
	case DeadLetterAt:
		l.At, err = time.Parse(time.RFC3339Nano, value)
	}
	return err == nil
}

// restoreTimestamp sets the record's timestamp from the last header, if that is a [sink.TimestampHeader].
func (l *DeadLetter) restoreTimestamp(headers []sink.Header) []sink.Header {
	if n := len(headers); n > 0 && headers[n-1].Key == sink.TimestampHeader {
		if at, err := time.Parse(time.RFC3339Nano, string(headers[n-1].Value)); err == nil {
			l.Record.Timestamp = at
			return headers[:n-1]
		}
	}
	return headers
}

// EventID returns the encoded id of the event: the header of a record, or the named column of a row. It is empty if
// there is none.
func (l *DeadLetter) EventID(column ColumnNames) string {
	names, fields := ColumnNames{IDHeader}, l.Record.Headers
	if l.IsRow() {
		names, fields = column, l.Columns
	}
	for _, name := range names {
		for _, f := range fields {
			if f.Key == name {
				return string(f.Value)
			}
		}
	}
	return ""
}

// IsRow reports whether the dead letter is for a table row that could not become a record.
func (l *DeadLetter) IsRow() bool { return l.Table != "" && len(l.Columns) > 0 }

// Revive fills rec with the record that the row or message of a dead letter becomes with the current
// configuration. table is the current definition of the row's table. Columns that are missing in the dead
// letter or the table do not exist. The commit time has a precision of one millisecond. As for Route, the
// slices in rec are valid until the next call, and the error is a *RowError or a *ColumnError, or wraps that
// of [Describe].
func (r *Router) Revive(l *DeadLetter, table *decoder.Relation, rec *sink.Record) error {
	tx := Tx{CommitLSN: l.LSN, CommitTime: l.Record.Timestamp, Timestamp: l.Record.Timestamp}
	if !l.IsRow() {
		prefix := strings.TrimPrefix(l.Table, messageTable)
		return r.RouteMessage(tx, l.Index, &decoder.LogicalMessage{Prefix: prefix, Content: l.Record.Value}, rec)
	}
	rel := &decoder.Relation{OID: table.OID, Namespace: table.Namespace, Name: table.Name, ReplicaIdentity: table.ReplicaIdentity}
	insert := &decoder.Insert{Relation: rel}
	for _, c := range table.Columns {
		text, ok := l.column(c.Name)
		for _, other := range r.cfg.Columns.namesOf(c.Name) { // the column may have been renamed
			if ok {
				break
			}
			text, ok = l.column(other)
		}
		if !ok && c.Name == r.cfg.Columns.Payload.in(table) {
			text, ok = payloadText(l.Record.Value, c.TypeOID), true
		}
		if !ok {
			continue
		}
		v := decoder.Value{Kind: decoder.Text, Data: text}
		if text == nil {
			v.Kind = decoder.Null
		}
		rel.Columns, insert.Row = append(rel.Columns, c), append(insert.Row, v)
	}
	return r.Route(tx, l.Index, insert, rec)
}

func (l *DeadLetter) column(name string) (text []byte, ok bool) {
	for _, c := range l.Columns {
		if c.Key == name {
			return c.Value, true
		}
	}
	return nil, false
}

// payloadText returns the payload of a dead row in text format. For bytea, value has the bytes.
func payloadText(value []byte, typ uint32) []byte {
	if typ != oidBytea || value == nil {
		return value
	}
	return hex.AppendEncode([]byte(`\x`), value)
}

// TextHeader returns a header with a text, in the Router's encoding of headers.
func (r *Router) TextHeader(name, text string) (sink.Header, error) {
	value, err := r.plainHeader([]byte{}, bytesOf(text))
	return sink.Header{Key: name, Value: value}, err
}

// PlacesPartition reports whether a column decides the partition.
func (cfg Config) PlacesPartition() bool {
	return slices.ContainsFunc(cfg.Place, func(p Placement) bool { return p.To == ToPartition })
}
