package inbox

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors about the tables and the transaction. An error that wraps one of the first three also wraps
// the server's error.
var (
	// ErrNoTable means that a table of the inbox does not exist, or that the search_path does not
	// include its schema.
	ErrNoTable = errors.New("the inbox tables do not exist; `outbox-cdc migrate up --only inbox` creates them" +
		" in the first schema of the search_path")

	// ErrOldTable means that a table of the inbox lacks a column.
	ErrOldTable = errors.New("a column is missing in the inbox tables; `outbox-cdc migrate up --only inbox` upgrades them")

	// ErrAborted means that an earlier statement of the transaction has failed. Roll it back.
	ErrAborted = errors.New("the transaction is aborted because an earlier statement failed")

	// ErrNotFound means that a consumer, or one of the events, is not in the tables.
	ErrNotFound = errors.New("not found")
)

// Errors about an attempt.
var (
	// ErrLeaseLost means that another processor has taken the event over, because the lease expired.
	// The effects of this attempt are rolled back. A handler finds it as the cause of its context.
	ErrLeaseLost = errors.New("another processor has taken the event over")

	// ErrUnknownType means that no handler is registered for the type of the event.
	ErrUnknownType = errors.New("no handler is registered for this event type")
)

// Permanent marks the error of a [Handler] as one that retries cannot fix. The event is parked at
// once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter sets the delay until the next attempt, in place of Config.RetryDelays, for example to
// the Retry-After of a service that limits requests. A negative delay counts as zero. The attempt
// counts as failed: if it was the last one, the event is parked. RetryAfter(d, nil) is nil.
func RetryAfter(delay time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{max(delay, 0), err}
}

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// A Failure is a failed attempt to handle an event. [Config].OnFailure gets it after the failure is
// committed to inbox_events.
type Failure struct {
	Event  Event // with the number of the attempt
	Err    error // of the handler or of its commit; a [*PanicError] if the handler panicked
	Parked bool  // no further attempt follows until `outbox-cdc inbox retry`
	// RetryIn is the delay until the next attempt. Zero if the event is parked.
	RetryIn time.Duration
}

// A PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // from runtime/debug.Stack
}

// Error returns the value of the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// An EventError is about an event that can be neither handled nor stored. [Processor.Handle] returns
// it at once.
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

// sqlState returns the SQLSTATE of err, or the empty string
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

// explain wraps an error of a driver. doing is what failed.
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

// final reports whether a retry of the statement must fail too: the server rejects its names, rights
// or values. Other errors can pass: a lost connection, a server that starts, a deadlock.
func final(err error) bool {
	state := sqlState(err)
	if len(state) != 5 || state == "42P05" || state == "26000" { // a prepared statement that a pooler has mixed up
		return false
	}
	return slices.Contains([]string{"0A", "22", "23", "28", "3D", "3F", "42", "54"}, state[:2])
}
