package sink

import "context"

// DeadLetters reads a destination that dead letters go to. It writes nothing and belongs to one
// goroutine.
type DeadLetters interface {
	// Spans returns what each partition holds now, in the order of their numbers. What may heal
	// is retried until ctx ends.
	Spans(ctx context.Context) ([]Span, error)

	// Read calls fn with each record at the offsets of span, in their order; what has expired is
	// left out. The record is fn's own. An error of fn ends the reading and is returned. What
	// may heal is retried until ctx ends, and goes on where it was.
	Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error

	// Close ends the DeadLetters.
	Close() error
}

// A Span is the offsets of a partition from Begin to before End.
type Span struct {
	Partition  int32
	Begin, End int64
}

// A StoredRecord is a record as its destination holds it. Its Timestamp is the one it was sent
// with, and its Seq is 0.
type StoredRecord struct {
	Record
	Offset int64 // which of its partition: it grows, with gaps
}
