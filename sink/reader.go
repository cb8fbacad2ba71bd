package sink

import "context"

// A Reader reads the committed records of destinations. It never writes. One goroutine uses it. Its methods retry
// transient errors until ctx ends.
type Reader interface {
	// Spans returns the current offsets of each partition of the destinations, by partition number. A partition
	// ends where its first open transaction begins. A destination that does not exist is not in the result.
	Spans(ctx context.Context, destinations ...string) (map[string][]Span, error)

	// Read calls fn for each record of a span, in the order of offsets, without those that have expired or
	// belong to an aborted transaction. fn may keep the record. If fn returns an error, Read stops and returns
	// it. After a transient error, Read continues at the next record.
	Read(ctx context.Context, destination string, span Span, fn func(*StoredRecord) error) error

	// Close closes the Reader.
	Close() error
}

// A PositionReader is a [Reader] that also reads position stores. It is optional: other brokers have a position store
// that is a destination, such as a topic of Kafka, or a local file.
type PositionReader interface {
	Reader

	// ReadPositions returns what [PositionStore.Read] returns for a store and a name. A store that does not exist has
	// no values, and is not created.
	ReadPositions(ctx context.Context, store, name string) ([]StoredValue, error)
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
