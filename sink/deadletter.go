package sink

import "context"

// DeadLetters reads the records of a dead-letter destination, as far as they are committed. It never
// writes. One goroutine uses it.
type DeadLetters interface {
	// Spans returns the current offsets of each partition, by partition number. A partition ends where
	// its first open transaction begins. It retries transient errors until ctx ends.
	Spans(ctx context.Context) ([]Span, error)

	// Read calls fn for each record of span, in the order of offsets, without those that have
	// expired or belong to an aborted transaction. fn may keep the record. If fn returns an error, Read stops and returns it. Read
	// retries transient errors until ctx ends, and continues at the next record.
	Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error

	// Close closes the DeadLetters.
	Close() error
}

// A Span is the offsets of a partition from Begin up to, but not including, End.
type Span struct {
	Partition  int32
	Begin, End int64
}

// A StoredRecord is a record that was read from a destination. Its Timestamp is the one with
// which it was sent. Its Seq is 0.
type StoredRecord struct {
	Record
	Offset int64 // in its partition; offsets increase, with gaps
}
