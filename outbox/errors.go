package outbox

import (
	"errors"
	"fmt"
)

// Errors that you can fix. An error that wraps one of these also wraps the server's error.
var (
	// ErrNoTable means that the table does not exist, or that the search_path does not include its
	// schema.
	ErrNoTable = errors.New("the outbox table does not exist; `outbox-cdc migrate up` creates it in the first schema of the search_path")

	// ErrOldTable means that the table lacks a column.
	ErrOldTable = errors.New("a column is missing in the outbox table; `outbox-cdc migrate up` upgrades the table," +
		" or set outbox.Config.Columns for a table of your own")

	// ErrAborted means that an earlier statement of the transaction has failed. Roll it back.
	ErrAborted = errors.New("the transaction is aborted because an earlier statement failed")
)

// An EventError is a problem of an event. The call has written nothing, and the transaction is still
// usable. The text of the error contains no value of the event, except the name of a header, and what
// encoding/json reports.
type EventError struct {
	Index  int    // of the event in the call, from 0
	Field  string // of Event, or Trace for the result of Config.Trace
	Reason string
	Err    error // from encoding/json, if the payload cannot be marshaled; otherwise nil
}

// Error returns one line such as "outbox: event 2: Type is empty".
func (e *EventError) Error() string {
	return fmt.Sprintf("outbox: event %d: %s %s", e.Index, e.Field, e.Reason)
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

// explain wraps the error of a statement for n events
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

// sqlState returns the SQLSTATE of a server's error, with any driver.
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
