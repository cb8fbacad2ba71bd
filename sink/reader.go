package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// A ReaderOpener is a [Broker] from which records can be read back. It is optional.
type ReaderOpener interface {
	Broker

	// OpenReader returns a Reader, which connects when it is used. It needs no privilege to write. The
	// caller must close the Reader.
	OpenReader(log *slog.Logger) (Reader, error)

	// OpenDeadLetters connects like Open, but needs no privilege to write. The error wraps
	// ErrMissing if the destination does not exist. The caller must close the DeadLetters.
	OpenDeadLetters(ctx context.Context, destination string, log *slog.Logger) (DeadLetters, error)
}

// OpenReader calls OpenReader of b. The error wraps [errors.ErrUnsupported] if b is no ReaderOpener.
func OpenReader(b Broker, log *slog.Logger) (Reader, error) {
	o, ok := b.(ReaderOpener)
	if !ok {
		return nil, errUnreadable(b)
	}
	return o.OpenReader(log)
}

// OpenDeadLetters calls OpenDeadLetters of b. The error wraps [errors.ErrUnsupported] if b is no ReaderOpener.
func OpenDeadLetters(ctx context.Context, b Broker, destination string, log *slog.Logger) (DeadLetters, error) {
	o, ok := b.(ReaderOpener)
	if !ok {
		return nil, errUnreadable(b)
	}
	return o.OpenDeadLetters(ctx, destination, log)
}

func errUnreadable(b Broker) error {
	return fmt.Errorf("%w: records cannot be read back from %s", errors.ErrUnsupported, b)
}

// A Reader reads the committed records of destinations. It never writes. One goroutine uses it. Its methods retry
// transient errors until ctx ends.
type Reader interface {
	// OffsetRanges returns the current offsets of each partition of the destinations, by partition number. A range ends
	// where the first open transaction of its partition begins; [OffsetRange.Open] then says which records are hidden. Every
	// record that was stored before the call is in its range or hidden. A destination that does not exist is not in
	// the result.
	OffsetRanges(ctx context.Context, destinations ...string) (map[string][]OffsetRange, error)

	// Read calls fn for each record of a range, in the order of offsets, without those that have expired or
	// belong to an aborted transaction. fn may keep the record. If fn returns an error, Read stops and returns
	// it. After a transient error, Read continues at the next record.
	Read(ctx context.Context, destination string, offsets OffsetRange, fn func(*StoredRecord) error) error

	// Close closes the Reader.
	Close() error
}

// A PositionReader is a [Reader] that also reads position stores. It is optional: see [PositionOpener].
type PositionReader interface {
	Reader

	// ReadPositions returns what [PositionStore.Read] returns for a store and a name. A store that does not exist has
	// no values, and is not created.
	ReadPositions(ctx context.Context, store, name string) ([]StoredValue, error)
}

// An OffsetRange is the offsets of a partition from Begin up to, but not including, End. Begin is 0 if no record was removed from the
// beginning.
type OffsetRange struct {
	Partition  int32
	Begin, End int64

	// Hidden is the offset behind the records that cannot be read before the transaction that is open at End has ended. 0:
	// no transaction is open.
	Hidden int64
}

// Open returns an *[OpenTransactionError] if an open transaction hides records of the destination behind s, and otherwise
// nil.
func (s OffsetRange) Open(destination string) error {
	if s.Hidden <= s.End {
		return nil
	}
	return &OpenTransactionError{destination, s.Partition, s.End}
}

// An OpenTransactionError says that records cannot be read before a transaction ends.
type OpenTransactionError struct {
	Destination string
	Partition   int32
	Since       int64 // offset of its first record in the partition
}

// Error names the partition and the first offset that cannot be read.
func (e *OpenTransactionError) Error() string {
	return fmt.Sprintf("a transaction is open in partition %d of topic %s since offset %d, and records from there on cannot be read before it ends",
		e.Partition, e.Destination, e.Since)
}

// A StoredRecord is a record that was read from a destination. Its Timestamp is the one with
// which it was sent. Its Seq is 0.
type StoredRecord struct {
	Record
	Offset int64 // in its partition; offsets increase, with gaps
}
