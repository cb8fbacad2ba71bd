package outbox

import (
	"errors"
	"fmt"
)

// What keeps a transaction from being written to, and has an answer. Errors that wrap one of these
// also wrap the server's.
var (
	// ErrNoTable: the table is not there, or not in the search_path of the transaction.
	ErrNoTable = errors.New("there is no such table; `outbox-cdc migrate up` makes it, in the schema that the search_path has first")

	// ErrOldTable: the table lacks a column that is to be filled.
	ErrOldTable = errors.New("the table lacks a column; `outbox-cdc migrate up` brings an older one up to date," +
		" for one of your own see outbox.Config.Columns")

	// ErrAborted: a statement before this one has failed. Roll the transaction back.
	ErrAborted = errors.New("the transaction is aborted: a statement before this one has failed")
)

// An EventError names the event and the field that keep a call from writing anything. Nothing of
// the field's value is in its text, but for the name of a header that cannot be set.
type EventError struct {
	Index  int    // which of the call's events, from 0
	Field  string // as in Event, or Trace for what Config.Trace has returned
	Reason string // what is wrong with it
	Err    error  // of a payload that cannot be marshaled, else nil
}

// Error returns one line such as "outbox: event 2: Type is empty".
func (e *EventError) Error() string {
	return fmt.Sprintf("outbox: event %d: %s %s", e.Index, e.Field, e.Reason)
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

// explain wraps what a driver says of a statement for n events, if it says anything
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func explain(n int, err error) error {
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
	}
	if known != nil {
		return fmt.Errorf("outbox: write %d events: %w: %w", n, known, err)
	}
	return fmt.Errorf("outbox: write %d events: %w", n, err)
}

// sqlState returns the code of a server's error, whatever the driver.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface { // of pgx and lib/pq
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	if e, ok := errors.AsType[interface { // of bun's pgdriver
		error
		Field(field byte) string
	}](err); ok {
		return e.Field('C')
	}
	return ""
}
