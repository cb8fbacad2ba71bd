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
// headers of the record, none of which can have such a name: see isOwnHeader.
const (
	deadLetterPrefix = "dead_letter_" // prefix of all of them

	DeadLetterReason = deadLetterPrefix + "reason"
	DeadLetterTopic  = deadLetterPrefix + "topic" // topic of the record; absent if unknown
	DeadLetterTable  = deadLetterPrefix + "table" // of a row that could not become a record
	DeadLetterSlot   = deadLetterPrefix + "slot"
	DeadLetterLSN    = deadLetterPrefix + "lsn"   // commit LSN of the row's transaction
	DeadLetterIndex  = deadLetterPrefix + "index" // index of the row in the transaction, from 0
	DeadLetterAt     = deadLetterPrefix + "at"    // when the dead letter was made (RFC 3339, UTC)

	// DeadLetterPartition is the partition of the record. Absent if unknown.
	DeadLetterPartition = deadLetterPrefix + "partition"

	// DeadLetterColumn is the prefix of the headers with the other columns of a row that could not
	// become a record, in text format. NULL is a null value.
	DeadLetterColumn = deadLetterPrefix + "column_"

	// DeadLetterParked says that the key of the record is parked. It has the parking and the place in it:
	// see [Parked].
	DeadLetterParked = deadLetterPrefix + "parked"

	// DeadLetterTruncated is the last header of a dead letter that its topic has rejected as it was. It has
	// the sizes of the parts that were left out.
	DeadLetterTruncated = deadLetterPrefix + "truncated"
)

// An Origin is the row that a dead letter is for.
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

// DeadRow returns the dead letter for a row that Route has rejected: the payload is the value, the key is
// the key, and all other columns are headers. It does not alias row. Its topic is topic.
func (r *Router) DeadRow(topic string, o Origin, row *decoder.Insert, refused *RowError) *sink.Record {
	rec := &sink.Record{Topic: topic, Partition: sink.AnyPartition, Timestamp: o.Tx.Timestamp}
	rec.Headers = append(o.headers(refused.Error()), sink.Header{Key: DeadLetterTable, Value: []byte(refused.table)})
	payload, key := r.cfg.Columns.Payload.in(row.Relation), r.cfg.Columns.Key.in(row.Relation)
	for i, c := range row.Relation.Columns {
		data := bytes.Clone(row.Row[i].Data)
		switch c.Name {
		case payload:
			rec.Value = r.payloadOf(row, data)
			continue
		case key:
			rec.Key = data
		}
		rec.Headers = append(rec.Headers, sink.Header{Key: DeadLetterColumn + c.Name, Value: data})
	}
	return rec
}

// payloadOf returns the value of the row's record, or the bytes of the column if there is none.
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
	longestOmitted = 8   // maximum number of parts whose size it has
)

// TruncateDeadLetter returns a smaller dead letter for one that its topic rejects, with the id, the origin, a short key, and the sizes
// of the parts that it leaves out: the headers and columns and, if tooLarge, the value. idColumn has the names of the id column.
// TruncateDeadLetter returns nil if that has been left out already. The result aliases deadLetter.
func TruncateDeadLetter(deadLetter *sink.Record, idColumn ColumnNames, tooLarge bool) *sink.Record {
	short := &sink.Record{Topic: deadLetter.Topic, Partition: deadLetter.Partition, Timestamp: deadLetter.Timestamp}
	var omitted []piece
	if tooLarge {
		omitted = append(omitted, piece{"value", len(deadLetter.Value)})
	} else {
		short.Value = deadLetter.Value
	}
	if len(deadLetter.Key) <= longestKept {
		short.Key = deadLetter.Key
	} else {
		omitted = append(omitted, piece{"key", len(deadLetter.Key)})
	}
	earlier := ""
	for _, h := range deadLetter.Headers {
		column, isColumn := strings.CutPrefix(h.Key, DeadLetterColumn)
		switch {
		case h.Key == DeadLetterTruncated && (!tooLarge || deadLetter.Value == nil):
			return nil
		case h.Key == DeadLetterTruncated:
			earlier = ", " + string(h.Value)
		case isDeadLetterHeader(h) && !isColumn:
			short.Headers = append(short.Headers, sink.Header{Key: h.Key, Value: []byte(shorten(string(h.Value), longestKept))})
		case (h.Key == IDHeader || isColumn && slices.Contains(idColumn, column)) && len(h.Value) <= longestKept:
			short.Headers = append(short.Headers, h)
		case isColumn:
			omitted = append(omitted, piece{"column " + column, len(h.Value)})
		default:
			omitted = append(omitted, piece{"header " + h.Key, len(h.Value)})
		}
	}
	short.Headers = append(short.Headers, sink.Header{Key: DeadLetterTruncated, Value: []byte(sizes(omitted) + earlier)})
	return short
}

// A piece is a part of a dead letter, with its size.
type piece struct {
	name string
	size int
}

// sizes returns the names and sizes of the largest pieces.
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

// shorten truncates text to at most longest bytes.
func shorten(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// DeadRecord returns the dead letter for a record that the broker has rejected: the record with further
// headers. It aliases rec.
func DeadRecord(topic string, o Origin, rec *sink.Record, reason string) *sink.Record {
	dead := *rec
	dead.Topic, dead.Partition, dead.Position = topic, sink.AnyPartition, sink.Position{}
	destination := []sink.Header{{Key: DeadLetterTopic, Value: []byte(rec.Topic)}}
	if rec.Partition != sink.AnyPartition {
		destination = append(destination, sink.Header{Key: DeadLetterPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)})
	}
	dead.Headers = slices.Concat(rec.Headers, o.headers(reason, destination...))
	return &dead
}
