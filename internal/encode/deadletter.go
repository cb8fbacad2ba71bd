package encode

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Headers of a dead letter: where it came from and why it was not delivered. They follow the
// headers the record had, or would have had, none of which has such a name: see isOwnHeader.
const (
	deadLetterPrefix = "dead_letter_" // which all of them begin with

	DeadLetterReason = deadLetterPrefix + "reason"
	DeadLetterTopic  = deadLetterPrefix + "topic" // where it was to go; absent if that is not known
	DeadLetterTable  = deadLetterPrefix + "table" // of a row that could not become a record
	DeadLetterSlot   = deadLetterPrefix + "slot"
	DeadLetterLSN    = deadLetterPrefix + "lsn"   // commit LSN of the row's transaction
	DeadLetterIndex  = deadLetterPrefix + "index" // its place among the transaction's rows, from 0
	DeadLetterAt     = deadLetterPrefix + "at"    // when it was given up (RFC 3339, UTC)

	// DeadLetterPartition is the partition that a record was to go to: its key's, or a placed one.
	// Absent if that is not known.
	DeadLetterPartition = deadLetterPrefix + "partition"

	// DeadLetterColumn begins the headers that hold the other columns of a row that could not
	// become a record, as Postgres prints them; a NULL is a null value.
	DeadLetterColumn = deadLetterPrefix + "column_"

	// DeadLetterTruncated is the last header of a dead letter that was too large for its topic: the
	// sizes of what was left out.
	DeadLetterTruncated = deadLetterPrefix + "truncated"
)

// An Origin is where a dead letter came from.
type Origin struct {
	Slot  string
	Tx    Tx
	Index int // of the row in Tx, from 0
}

func (o Origin) headers(reason string, destination ...sink.Header) []sink.Header {
	headers := append([]sink.Header{{Key: DeadLetterReason, Value: []byte(reason)}}, destination...)
	return append(headers,
		sink.Header{Key: DeadLetterSlot, Value: []byte(o.Slot)},
		sink.Header{Key: DeadLetterLSN, Value: []byte(o.Tx.CommitLSN.String())},
		sink.Header{Key: DeadLetterIndex, Value: strconv.AppendInt(nil, int64(o.Index), 10)},
		sink.Header{Key: DeadLetterAt, Value: time.Now().UTC().AppendFormat(nil, time.RFC3339Nano)})
}

// DeadRow returns the dead letter of a row that Route has refused: its payload as the value,
// its key as the key, and all its other columns as headers. Nothing of it aliases row.
// It is for topic, whatever that is.
func (r *Router) DeadRow(topic string, o Origin, row *decoder.Insert, refused *RowError) *sink.Record {
	rec := &sink.Record{Topic: topic, Partition: sink.AnyPartition, Timestamp: o.Tx.Timestamp}
	rec.Headers = append(o.headers(refused.Error()), sink.Header{Key: DeadLetterTable, Value: []byte(refused.table)})
	for i, c := range row.Relation.Columns {
		data := bytes.Clone(row.Row[i].Data)
		switch c.Name {
		case r.cfg.Columns.Payload:
			rec.Value = r.payloadOf(row, data)
			continue
		case r.cfg.Columns.Key:
			rec.Key = data
		}
		rec.Headers = append(rec.Headers, sink.Header{Key: DeadLetterColumn + c.Name, Value: data})
	}
	return rec
}

// payloadOf returns the value the row's record would have, or else what the column holds.
func (r *Router) payloadOf(row *decoder.Insert, column []byte) []byte {
	p, err := r.planFor(row.Relation)
	if err != nil {
		return column
	}
	payload := p.payload
	payload.hasDefault = false
	value, reason := payload.raw(row.Row, &r.scratch)
	if reason != "" {
		return column
	}
	return bytes.Clone(value)
}

const (
	longestKept    = 300 // bytes of a key or header that a truncated dead letter keeps
	longestOmitted = 8   // parts whose size it names
)

// TruncateDeadLetter returns a dead letter that names the row of one which is too large for its topic,
// and what was left out: all but a short key, the id, and where it came from. idColumn is the name of the id's
// column. It returns nil if letter is truncated already. The result aliases letter.
func TruncateDeadLetter(letter *sink.Record, idColumn string) *sink.Record {
	short := &sink.Record{Topic: letter.Topic, Partition: letter.Partition, Timestamp: letter.Timestamp}
	omitted := []piece{{"value", len(letter.Value)}}
	if len(letter.Key) <= longestKept {
		short.Key = letter.Key
	} else {
		omitted = append(omitted, piece{"key", len(letter.Key)})
	}
	for _, h := range letter.Headers {
		column, isColumn := strings.CutPrefix(h.Key, DeadLetterColumn)
		switch {
		case h.Key == DeadLetterTruncated:
			return nil
		case isDeadLetterHeader(h) && !isColumn:
			short.Headers = append(short.Headers, sink.Header{Key: h.Key, Value: []byte(shorten(string(h.Value), longestKept))})
		case (h.Key == IDHeader || isColumn && column == idColumn) && len(h.Value) <= longestKept:
			short.Headers = append(short.Headers, h)
		case isColumn:
			omitted = append(omitted, piece{"column " + column, len(h.Value)})
		default:
			omitted = append(omitted, piece{"header " + h.Key, len(h.Value)})
		}
	}
	short.Headers = append(short.Headers, sink.Header{Key: DeadLetterTruncated, Value: []byte(sizes(omitted))})
	return short
}

// A piece of a dead letter.
type piece struct {
	name string
	size int
}

// sizes names the largest of pieces, with their sizes.
func sizes(pieces []piece) string {
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(b.size, a.size) })
	var b strings.Builder
	for i, p := range pieces[:min(len(pieces), longestOmitted)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %d bytes", shorten(p.name, longestID), p.size)
	}
	if more := len(pieces) - longestOmitted; more > 0 {
		fmt.Fprintf(&b, ", and %d more", more)
	}
	return b.String()
}

// shorten returns the beginning of a text that is longer than so many bytes.
func shorten(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// DeadRecord returns the dead letter of a record that Kafka has refused: the record itself,
// with more headers. It aliases rec.
func DeadRecord(topic string, o Origin, rec *sink.Record, reason string) *sink.Record {
	dead := *rec
	dead.Topic, dead.Partition = topic, sink.AnyPartition
	destination := []sink.Header{{Key: DeadLetterTopic, Value: []byte(rec.Topic)}}
	if rec.Partition != sink.AnyPartition {
		destination = append(destination, sink.Header{Key: DeadLetterPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)})
	}
	dead.Headers = slices.Concat(rec.Headers, o.headers(reason, destination...))
	return &dead
}
