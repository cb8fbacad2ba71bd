package sink

import (
	"errors"
	"fmt"
)

// The classes of errors that the relay decides by, for errors.Is. A broker's package says them in
// words of its own.
var (
	// ErrUnreachable: the broker did not answer at first contact before the context ended. The
	// text holds the last cause of each address tried.
	ErrUnreachable = errors.New("the broker cannot be reached")

	// ErrAccess: the broker has refused us, or we its certificate. It does not heal by waiting.
	ErrAccess = errors.New("no access to the broker")

	// ErrMissing: a destination does not exist and may not be created.
	ErrMissing = errors.New("destination does not exist")

	// ErrFenced: the broker rejects this writer because a newer one has taken over.
	ErrFenced = errors.New("fenced by a newer writer")

	// ErrSuperseded: the broker rejects this Writer because one with a higher identity has
	// written.
	ErrSuperseded = errors.New("a newer writer has taken over")

	// ErrIdentityUsed: the broker has lost the state of the Writer so often that its identity is
	// used up. A Writer with the next identity can continue.
	ErrIdentityUsed = errors.New("the writer's identity is used up")

	// ErrFatal: the broker gave an answer after which nothing more can be written.
	ErrFatal = errors.New("cannot go on writing")
)

// An Advised error says what the operator can do about it. A broker's errors of a class above are
// Advised if they do not say it themselves.
type Advised interface {
	error

	// Advice returns one or more sentences that name configuration keys, and nothing secret.
	Advice() string
}

// A RecordError is a record that the broker rejects for good, found by a check before sending or
// answered by the broker. Everything sent before the record was or will be delivered.
type RecordError struct {
	Seq       uint64
	Topic     string
	Partition int32    // AnyPartition if it had not been chosen yet
	Key       []byte   // for programs; Error does not print it
	Headers   []Header // the same
	Size      int      // bytes of the record as the limit counts them
	Limit     int      // of the destination; 0 if unknown
	TooLarge  bool     // because of its size: a smaller one may be accepted
	Code      string   // the broker's name for the reason, as MESSAGE_TOO_LARGE; may be empty
	Reason    error    // without content of the record
}

// Error identifies the record by topic, partition and size; never by its content.
func (e *RecordError) Error() string {
	where := e.Topic
	if e.Partition >= 0 {
		where = fmt.Sprintf("%s, partition %d", e.Topic, e.Partition)
	}
	limit := ""
	if e.Limit > 0 {
		limit = fmt.Sprintf(" (limit %d)", e.Limit)
	}
	return fmt.Sprintf("record for topic %s, %d bytes%s: %v", where, e.Size, limit, e.Reason)
}

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Reason }

// An UndeliveredError is returned by Run if its context ended before every record had an
// outcome.
type UndeliveredError struct {
	Records int // without an outcome
	Sent    int // those of them that were on the wire at least once and may have been stored
	Cause   error
}

// Error counts the records and says why Run was stopped.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("stopped with %d records unacknowledged, %d of them sent: %v", e.Records, e.Sent, e.Cause)
}

// Unwrap returns the cause of the context's end.
func (e *UndeliveredError) Unwrap() error { return e.Cause }
