package inbox

import (
	"errors"
	"fmt"
	"slices"
)

// What keeps the tables from being used, and has an answer. Errors that wrap one of these also wrap
// the server's.
var (
	// ErrNoTable: a table of the inbox is not there, or not in the search_path.
	ErrNoTable = errors.New("there is no such table; `outbox-cdc migrate up --only inbox` makes it," +
		" in the schema that the search_path has first")

	// ErrOldTable: a table of the inbox lacks a column.
	ErrOldTable = errors.New("the table lacks a column; `outbox-cdc migrate up --only inbox` brings an older one up to date")

	// ErrAborted: a statement before this one has failed. Roll the transaction back.
	ErrAborted = errors.New("the transaction is aborted: a statement before this one has failed")
)

// What becomes of an event's handling. Handlers find the first as the cause of their context.
var (
	// ErrLeaseLost: another processor has taken the event over, so this one's effects are rolled back.
	ErrLeaseLost = errors.New("another processor has taken the event over")

	// ErrUnknownType: no handler is registered for the type of the event.
	ErrUnknownType = errors.New("no handler is registered for the type of the event")
)

// A PanicError is a panic of a handler: its attempt has failed, and nothing else.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // as of runtime/debug.Stack
}

// Error returns what the handler panicked with, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// An EventError is an event that cannot be handled or kept, whatever is tried: [Processor.Handle]
// returns it at once.
type EventError struct {
	Topic     string
	Partition int32
	Offset    int64
	Reason    string
}

// Error returns one line such as "inbox: orders[3] at offset 17: the record has no header id".
func (e *EventError) Error() string {
	return fmt.Sprintf("inbox: %s[%d] at offset %d: %s", e.Topic, e.Partition, e.Offset, e.Reason)
}

// sqlState returns the server's code for err, or nothing
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func sqlState(err error) string {
	coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return ""
	}
	return coded.SQLState()
}

// explain wraps what a driver says of doing something with the tables.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var known error
	switch sqlState(err) {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		known = ErrNoTable
	case "42703": // undefined_column
		known = ErrOldTable
	case "25P02": // in_failed_sql_transaction
		known = ErrAborted
	default:
		return fmt.Errorf("inbox: %s: %w", doing, err)
	}
	return fmt.Errorf("inbox: %s: %w: %w", doing, known, err)
}

// final reports whether the same statement can only fail again: the server has understood it and
// says no to its names, rights or values. All else may pass: a lost connection, a server that
// starts, a deadlock.
func final(err error) bool {
	state := sqlState(err)
	if len(state) != 5 || state == "42P05" || state == "26000" { // a prepared statement that a pooler has mixed up
		return false
	}
	return slices.Contains([]string{"0A", "22", "23", "28", "3D", "3F", "42", "54"}, state[:2])
}
