package sink

import (
	"errors"
	"fmt"
	"log/slog"
)

// The classes of errors, for errors.Is. They decide what the relay does. Each broker's package wraps
// them in errors of its own.
var (
	// ErrUnreachable: at the first contact, the broker did not respond before the context ended.
	// The text has the last error of each address that was tried.
	ErrUnreachable = errors.New("the broker cannot be reached")

	// ErrAccess: the broker rejects us, or its certificate does not verify. Retrying does not help.
	ErrAccess = errors.New("no access to the broker")

	// ErrMissing: a destination does not exist and may not be created.
	ErrMissing = errors.New("destination does not exist")

	// ErrSuperseded: the broker rejects what an Owner or its Writer writes, because there is a newer Owner.
	ErrSuperseded = errors.New("superseded by a newer owner")

	// ErrFatal: after this response of the broker, the Writer cannot write any more.
	ErrFatal = errors.New("cannot continue writing")
)

// An Advised error tells the operator how to fix it. Errors of the classes above implement it if
// their text does not say so.
type Advised interface {
	error

	// Advice returns one or more sentences. They may name configuration keys, but no secrets.
	Advice() string
}

// NewError returns an error of one of the classes above, with a text of its own. advice is that of an [Advised]; it may be empty.
func NewError(class error, text, advice string) error {
	return Advise(&classError{class, text}, advice)
}

type classError struct {
	class error
	text  string
}

func (e *classError) Error() string { return e.text }

func (e *classError) Unwrap() error { return e.class }

// Advise returns err as an [Advised] error, or as it is if advice is empty.
func Advise(err error, advice string) error {
	if advice == "" {
		return err
	}
	return &advisedError{err, advice}
}

type advisedError struct {
	error

	advice string
}

func (e *advisedError) Unwrap() error { return e.error }

func (e *advisedError) Advice() string { return e.advice }

// AdviceOf returns the advice of err, or "" if neither err nor an error that it wraps is an [Advised] one.
func AdviceOf(err error) string {
	if advised, ok := errors.AsType[Advised](err); ok {
		return advised.Advice()
	}
	return ""
}

// WithFix returns the attributes of a log line, with advice as the fix unless it is empty.
func WithFix(attrs []slog.Attr, advice string) []slog.Attr {
	if advice == "" {
		return attrs
	}
	return append(attrs, slog.String("fix", advice))
}

// A RecordError says that a record was rejected for good, by a check before sending or by the broker.
// Every record that was sent before it was or will be delivered.
type RecordError struct {
	Seq       uint64
	Topic     string
	Partition int32    // AnyPartition if none was chosen yet
	Key       []byte   // not part of the text
	Headers   []Header // not part of the text
	Size      int      // size of the record in bytes, as the limit counts it
	Limit     int      // of the destination, in bytes; 0 if unknown
	TooLarge  bool     // rejected because of its size; a smaller record may be accepted
	BadHeader bool     // rejected because of a header; a record without headers may be accepted
	Code      string   // error code of the broker, such as MESSAGE_TOO_LARGE; may be empty
	Reason    error    // contains no part of the record
}

// Error identifies the record by topic, partition and size, never by its content.
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

// An UndeliveredError is the error of Run if it was stopped before every record had an outcome.
type UndeliveredError struct {
	Records int // number of records without an outcome
	Sent    int // how many of them were sent and may be stored
	Cause   error
}

// Error says how many records are unacknowledged and why Run was stopped.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("stopped with %d records unacknowledged, %d of them sent: %v", e.Records, e.Sent, e.Cause)
}

// Unwrap returns Cause.
func (e *UndeliveredError) Unwrap() error { return e.Cause }
