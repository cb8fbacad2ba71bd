package kafka

import (
	"errors"
	"fmt"
)

// What went wrong, for errors.Is.
var (
	// ErrUnreachable: no broker answered at first contact before the context ended. The
	// text holds the last cause of each address tried.
	ErrUnreachable = errors.New("no Kafka broker can be reached")

	// ErrAccess: at first contact the cluster refused us, or we its certificate. It does
	// not heal by waiting.
	ErrAccess = errors.New("no access to Kafka")

	// ErrTopicMissing: CheckTopics found that a topic does not exist and may not be made.
	ErrTopicMissing = errors.New("topic does not exist")

	// ErrFenced: another producer has taken over our identity.
	ErrFenced = errors.New("fenced by another producer")

	// ErrFatal: a broker gave an answer after which nothing more can be sent.
	ErrFatal = errors.New("cannot go on writing to Kafka")
)

// A RecordError is a record that Kafka does not take, found by a check before sending or
// answered by the broker. Everything sent before the record was or will be delivered.
type RecordError struct {
	Seq       uint64
	Topic     string
	Partition int32    // AnyPartition if it had not been chosen yet
	Key       []byte   // for programs; Error does not print it
	Headers   []Header // the same
	Size      int      // of the record alone in a batch, before compression
	Limit     int      // of a batch of this topic; 0 if unknown
	Reason    error    // a *CodeError
}

// Error names the record by topic, partition and size; never by its content.
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

// A CodeError is an error code of the Kafka protocol, from a broker or given by us in its
// place.
type CodeError struct {
	Code   int16
	Name   string // as in the protocol's table, e.g. MESSAGE_TOO_LARGE
	Detail string // what it means here
}

// Error returns name and detail.
func (e *CodeError) Error() string { return e.Name + ": " + e.Detail }

// An UndeliveredError is returned by Run when its context ended before every record had an
// outcome.
type UndeliveredError struct {
	Records int // without an outcome
	Sent    int // those of them that were on the wire at least once and may have been appended
	Cause   error
}

// Error counts the records and says why Run was stopped.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("stopped with %d records unacknowledged, %d of them sent: %v", e.Records, e.Sent, e.Cause)
}

// Unwrap returns the cause of the context's end.
func (e *UndeliveredError) Unwrap() error { return e.Cause }

// named returns err with our own text in place of sarama's where a code of the protocol is
// at the bottom of it.
func named(err error) error {
	if k, ok := codeIn(err); ok {
		return errorOf(k)
	}
	return err
}
