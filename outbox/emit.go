package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Emit writes events into the write-ahead log of tx's transaction and into no table: each is a
// logical message with the prefix outbox, which the relay takes for a row if its setting
// outbox.messages names that prefix. They are published if and only if tx commits.
//
// There is no table to make, to index, to vacuum or to prune, and so nothing to look at or to send
// again: an event that no slot has kept the log for is gone. Use [Write] unless that is what you
// want.
//
// It is one round trip however many events there are; order, checks and errors are those of Write.
// A message is text, so a payload must be UTF-8 without NUL bytes; JSON keeps its bytes, but for
// white space around it. Columns and MaxBytes of a [Writer]'s Config apply; Columns.Partition needs
// a relay with outbox.on_missing_column: ignore, for events that have none.
//
// See pg_logical_emit_message in https://www.postgresql.org/docs/current/functions-admin.html.
func Emit(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return defaultWriter.Emit(ctx, tx, events...)
}

// EmitSQL is [Emit] for database/sql, with any driver for Postgres.
func EmitSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return defaultWriter.EmitSQL(ctx, tx, events...)
}

// Emit does what the function of that name does, as w's Config says.
func (w *Writer) Emit(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return w.emit(ctx, pgxExec(tx), events)
}

// EmitSQL does what the function of that name does, as w's Config says.
func (w *Writer) EmitSQL(ctx context.Context, tx *sql.Tx, events ...Event) error {
	return w.emit(ctx, sqlExec(tx), events)
}

const (
	emitOne  = `SELECT pg_logical_emit_message(true, $1::text, $2::text)`
	emitMany = `SELECT count(pg_logical_emit_message(true, $1::text, content)) FROM unnest($2::text[]) AS content`
)

func (w *Writer) emit(ctx context.Context, exec exec, events []Event) error {
	rows, err := w.rows(ctx, w.cfg.PayloadType.inMessage(), events)
	switch {
	case err != nil || len(rows) == 0:
		return err
	case len(rows) == 1:
		err = exec(ctx, emitOne, w.cfg.MessagePrefix, w.message(&rows[0]))
	default:
		err = exec(ctx, emitMany, w.cfg.MessagePrefix, array(rows, func(r *row) any { return w.message(r) }))
	}
	return explain(len(rows), err)
}

// inMessage returns the type that holds a payload of type t in a message: text, and no jsonb.
func (t PayloadType) inMessage() PayloadType {
	switch t {
	case JSONB, JSON:
		return JSON
	case Text, Bytea:
	}
	return Text
}

// message returns r as a JSON object with a member for each column. In place of NULL the optional
// ones are left out.
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

// payloadMember returns a payload as JSON. The relay reads an object or an array as the document it
// is and a string as the text in it, so a document of any other kind is put into a string.
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
	text, _ := json.Marshal(s) // of a string it cannot fail
	return text
}
