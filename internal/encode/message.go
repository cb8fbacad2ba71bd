package encode

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// messageShapes and messageShapeBytes limit the plans for messages. There is one plan for each combination
// of members and types.
const (
	messageShapes     = 1024
	messageShapeBytes = 1 << 20
)

// maxMembers is the maximum number of members of a message or a headers column: the maximum number of columns
// of a Postgres table.
// https://www.postgresql.org/docs/current/limits.html
const maxMembers = 1600

// messageTable is used in place of a table name for messages, in errors and dead letters. The prefix of the
// message follows.
const messageTable = "message "

// A message is a logical message as a row. Its columns are the members of the JSON object: a string is a
// text column, a number is an integer or float8 column, and an object or array is a json column.
type message struct {
	table   string
	columns []decoder.Column
	row     []decoder.Value // one per column
}

// RouteMessage is Route for a logical message (pg_logical_emit_message) that has a row as a JSON object.
// The error is a *RowError, never a *ColumnError, because every message has its own columns.
//
// The record has no context headers; Debezium's has none either. A null member is a NULL column. Debezium
// drops such members, and so does Exact, unless the Expansion keeps them.
func (r *Router) RouteMessage(tx Tx, index int, m *decoder.LogicalMessage, rec *sink.Record) error {
	row, err := r.readMessage(m)
	if err != nil {
		return err
	}
	p, err := r.messagePlan(row)
	if err != nil {
		refused := &RowError{table: row.table, ID: row.text(r.cfg.Columns.ID), reason: err.Error()}
		if e, ok := errors.AsType[*ColumnError](err); ok {
			refused.reason = strings.Join(e.Problems, "; ")
		}
		return refused
	}
	return r.record(p, tx, index, row.row, nil, rec)
}

// readMessage parses the object of m. If a name is repeated, the last member counts.
func (r *Router) readMessage(m *decoder.LogicalMessage) (*message, error) {
	row := &message{table: messageTable + m.Prefix}
	refuse := func(reason string) (*message, error) { return nil, &RowError{table: row.table, reason: reason} }
	switch {
	case jsontext.TooDeep(m.Content):
		return refuse(fmt.Sprintf("is nested more than %d levels deep", jsontext.MaxDepth))
	case !gjson.ValidBytes(m.Content): // recursive, so the depth was checked first
		return refuse("is not JSON")
	}
	object := gjson.ParseBytes(m.Content)
	if !object.IsObject() {
		return refuse("is not a JSON object")
	}
	typed := r.cfg.Encoding.any()
	dropNulls := r.cfg.Debezium.Exact && !r.cfg.Debezium.Expansion.Nulls
	object.ForEach(func(name, value gjson.Result) bool {
		if value.Type != gjson.Null || !dropNulls {
			row.set(name.Str, value, typed)
		}
		return len(row.columns) <= maxMembers
	})
	if len(row.columns) > maxMembers {
		return refuse(fmt.Sprintf("has more than %d members", maxMembers))
	}
	return row, nil
}

// set adds a member. If typed is set, its text is that of a column of its type, otherwise its JSON.
func (m *message) set(name string, member gjson.Result, typed bool) {
	column := decoder.Column{Name: name, TypeOID: memberType(member), TypeModifier: -1}
	value := decoder.Value{Kind: decoder.Text, Data: []byte(member.Raw)}
	switch member.Type {
	case gjson.Null:
		value = decoder.Value{Kind: decoder.Null}
	case gjson.String:
		value.Data = []byte(member.Str)
	case gjson.True, gjson.False:
		if typed {
			value.Data = value.Data[:1] // the text format of a boolean
		}
	case gjson.Number, gjson.JSON:
	}
	for i, c := range m.columns {
		if c.Name == name {
			m.columns[i], m.row[i] = column, value
			return
		}
	}
	m.columns, m.row = append(m.columns, column), append(m.row, value)
}

// memberType returns the OID of the column type for a member.
func memberType(member gjson.Result) uint32 {
	switch member.Type {
	case gjson.True, gjson.False:
		return oidBool
	case gjson.JSON:
		return oidJSON
	case gjson.Number:
		if strings.ContainsAny(member.Raw, ".eE") {
			return oidFloat8
		}
		if _, err := strconv.ParseInt(member.Raw, 10, 32); err == nil {
			return oidInt4
		}
		if _, err := strconv.ParseInt(member.Raw, 10, 64); err == nil {
			return oidInt8
		}
	case gjson.Null:
		return oidBytea // Debezium's schema for a null member is that of optional bytes
	case gjson.String:
	}
	return oidText
}

func (m *message) text(column ColumnNames) string {
	name := column.in(&decoder.Relation{Columns: m.columns})
	for i, c := range m.columns {
		if c.Name == name {
			return string(m.row[i].Data)
		}
	}
	return ""
}

// messagePlan returns the plan for messages with m's prefix, members and types.
func (r *Router) messagePlan(m *message) (*plan, error) {
	shape := []byte(m.table)
	for _, c := range m.columns {
		shape = append(append(shape, 0), c.Name...)
		shape = strconv.AppendUint(append(shape, 0), uint64(c.TypeOID), 10)
	}
	if p := r.messages[string(shape)]; p != nil {
		return p, nil
	}
	rel := &decoder.Relation{Name: m.table, Columns: m.columns}
	for i, c := range rel.Columns {
		rel.Columns[i].Name = strings.Clone(c.Name) // the plan outlives the message's memory
	}
	p := &plan{relation: rel, table: m.table}
	f := &finder{rel: rel, types: typing{rel: rel, describe: noCatalog}, debezium: &r.cfg.Debezium, message: true}
	if err := r.fill(p, f); err != nil {
		return nil, err
	}
	if r.shapeBytes += len(shape); len(r.messages) >= messageShapes || r.shapeBytes > messageShapeBytes {
		clear(r.messages)
		r.shapeBytes = len(shape)
	}
	if len(shape) <= messageShapeBytes {
		r.messages[string(shape)] = p
	}
	return p, nil
}

// noCatalog is the Describe for messages, which have no definition in the catalog.
func noCatalog(*decoder.Relation) ([]format.Column, error) { return nil, nil }

// DeadMessage returns the dead letter for a message that RouteMessage has rejected, with the content as the
// value. It does not alias m. Its topic is topic.
func (r *Router) DeadMessage(topic string, o Origin, m *decoder.LogicalMessage, refused *RowError) *sink.Record {
	return &sink.Record{
		Topic: topic, Partition: sink.AnyPartition, Timestamp: o.Tx.Timestamp,
		Value:   bytes.Clone(m.Content),
		Headers: append(o.headers(refused.Error()), sink.Header{Key: DeadLetterTable, Value: []byte(refused.table)}),
	}
}
