package encode

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Headers of a dead letter: where it came from and why it was not delivered. They follow the
// headers the record had, or would have had.
const (
	DeadLetterReason = "dead_letter_reason"
	DeadLetterTopic  = "dead_letter_topic" // where it was to go; absent if that is not known
	DeadLetterTable  = "dead_letter_table" // of a row that could not become a record
	DeadLetterSlot   = "dead_letter_slot"
	DeadLetterLSN    = "dead_letter_lsn"   // commit LSN of the row's transaction
	DeadLetterIndex  = "dead_letter_index" // its place among the transaction's rows, from 0
	DeadLetterAt     = "dead_letter_at"    // when it was given up (RFC 3339, UTC)

	// DeadLetterPartition is the partition that a record was to go to: its key's, or a placed one.
	// Absent if that is not known.
	DeadLetterPartition = "dead_letter_partition"

	// DeadLetterColumn begins the headers that hold the other columns of a row that could not
	// become a record, as Postgres prints them; a NULL is a null value.
	DeadLetterColumn = "dead_letter_column_"
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
