package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// WriteMessage writes events to the write-ahead log (WAL) of tx, and to no table. Each event is a
// logical message with the prefix outbox. The relay reads it as a row if outbox.messages in its
// configuration has that prefix. The events are published if and only if tx commits.
//
// There is no table to create, vacuum or prune. But you cannot query the events or send them again: an
// event whose WAL no slot has retained is lost. Use [Write] unless you need this.
//
// A call is one round trip, however many events there are. Order, checks and errors are those of
// Write. A message is text, so a payload must be UTF-8 without NUL bytes. JSON keeps its bytes, except
// for white space around it. Of a [Writer]'s Config, Columns and MaxBytes apply. If Columns.Partition
// is set and some events have no partition, the relay needs outbox.on_missing_column: ignore.
//
// See pg_logical_emit_message in the [Postgres manual].
//
// [Postgres manual]: https://www.postgresql.org/docs/current/functions-admin.html
func WriteMessage(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.WriteMessage(ctx, tx, events...)
}

// WriteMessageSQL is [WriteMessage] for database/sql, with any Postgres driver.
func WriteMessageSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.WriteMessageSQL(ctx, tx, events...)
}

// WriteMessage is the function [WriteMessage] with the Config of w.
func (w *Writer) WriteMessage(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.writeMessages(ctx, pgxExec(tx), events)
}

// WriteMessageSQL is the function [WriteMessageSQL] with the Config of w.
func (w *Writer) WriteMessageSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.writeMessages(ctx, sqlExec(tx), events)
}

const (
	messageOne  = `SELECT pg_logical_emit_message(true, $1::text, $2::text)`
	messageMany = `SELECT count(pg_logical_emit_message(true, $1::text, content)) FROM unnest($2::text[]) AS content`
)

func (w *Writer) writeMessages(ctx context.Context, exec exec, events []Event) error {
	rows, err := w.rows(ctx, w.cfg.PayloadType.inMessage(), events)
	switch {
	case err != nil || len(rows) == 0:
		return err
	case len(rows) == 1:
		err = exec(ctx, messageOne, w.cfg.MessagePrefix, w.message(&rows[0]))
	default:
		err = exec(ctx, messageMany, w.cfg.MessagePrefix, array(rows, func(r *row) any { return w.message(r) }))
	}
	return explain(len(rows), err)
}

// inMessage returns the payload type of a message in place of t: a message is text and has no jsonb.
func (t PayloadType) inMessage() PayloadType {
	switch t {
	case JSONB, JSON:
		return JSON
	case Text, Bytea:
	}
	return Text
}

// message returns r as a JSON object with a member for each column. Optional columns that are NULL
// have no member.
func (w *Writer) message(r *row) string {
	n := w.cfg.Columns
	b := appendMember(make([]byte, 0, 256+len(r.payload)+len(r.headers)), '{', n.ID, quote(r.id))
	b = appendMember(b, ',', n.AggregateType, quote(r.event.AggregateType))
	b = appendMember(b, ',', n.AggregateID, quote(r.event.AggregateID))
	b = appendMember(b, ',', n.Type, quote(r.event.Type))
	b = appendMember(b, ',', n.Payload, w.payloadMember(r.payload))
	if n.Headers != NoColumn && r.headers != nil {
		b = appendMember(b, ',', n.Headers, r.headers)
	}
	for _, number := range []struct {
		column string
		value  any
	}{{n.Partition, r.partitionValue()}, {n.SchemaVersion, r.schemaVersionValue()}} {
		if text, ok := number.value.(string); ok && number.column != "" {
			b = appendMember(b, ',', number.column, []byte(text))
		}
	}
	return string(append(b, '}'))
}

// payloadMember returns a payload as JSON. The relay reads an object or array as the document itself,
// and a string as the text in it. So any other document is put into a string.
func (w *Writer) payloadMember(payload []byte) []byte {
	if payload == nil {
		return []byte("null")
	}
	if w.cfg.PayloadType.inMessage() == Text {
		return quote(string(payload))
	}
	payload = bytes.TrimSpace(payload)
	if payload[0] == '{' || payload[0] == '[' {
		return payload
	}
	return quote(string(payload))
}

func appendMember(b []byte, before byte, name string, value []byte) []byte {
	b = append(append(b, before), quote(name)...)
	return append(append(b, ':'), value...)
}

// quote returns s, which is UTF-8, as a JSON string.
func quote(s string) []byte {
	text, _ := json.Marshal(s) // a string cannot fail
	return text
}
