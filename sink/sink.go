package sink

import (
	"context"
	"log/slog"
)

// A Broker is a broker as it is configured. Nothing has contacted it yet.
type Broker interface {
	// Open reaches the broker for the first time and proves that writing is allowed.
	//
	// It is strict: an error that wraps ErrAccess comes at once if credentials or privileges are
	// refused, or a certificate does not verify. A broker that cannot be reached is tried again,
	// with back-off, until ctx ends; the error then wraps ErrUnreachable. ctx bounds Open only.
	// The Sink must be closed.
	Open(ctx context.Context, log *slog.Logger) (Sink, error)

	// OpenDeadLetters reaches the broker as Open does, but without the right to write, and looks
	// for the destination. The error wraps ErrMissing if there is none. The DeadLetters must be
	// closed.
	OpenDeadLetters(ctx context.Context, destination string, log *slog.Logger) (DeadLetters, error)

	// String names the broker and its addresses for a person, without credentials.
	String() string
}

// A Sink is a broker that was reached. It outlives its Writers, and keeps for them what they
// share. Its methods may be called from any goroutine.
type Sink interface {
	// NewWriter returns a Writer. Run of the previous one must have returned.
	NewWriter(cfg WriterConfig) Writer

	// OpenPositions returns the store that keeps values under name in a place of the broker that
	// is called store, and creates that place if it is missing. What may heal is retried until
	// ctx ends; an error that wraps ErrAccess or ErrFatal does not heal. The PositionStore lives
	// until Close, does not wait for records of a Writer and does not hold them up.
	OpenPositions(ctx context.Context, store, name string) (PositionStore, error)

	// CheckDestinations returns an error that wraps ErrMissing and names those of the given
	// destinations that do not exist and may not be created, or an error that wraps ErrAccess if
	// one of them may not be seen. Writing does not need it: a Writer waits for a missing
	// destination.
	CheckDestinations(ctx context.Context, destinations ...string) error

	// Stat returns a snapshot of the Sink, its present Writer and its position stores. It does
	// not block.
	Stat() Stat

	// Close ends the Sink and its position stores. Run of every Writer must have returned.
	Close() error
}

// A PositionStore keeps one value per writer outside the process: a little state that has to
// outlive it, written rarely and read at the start. Its methods may be called from any goroutine.
type PositionStore interface {
	// Read returns the newest value of each writer, in the order in which they were stored. It
	// sees every value that was acknowledged before it was called. Of the writer "" it may also
	// return values that a newer one has replaced. What may heal is retried until ctx ends.
	Read(ctx context.Context) ([]StoredValue, error)

	// Write replaces the value of a writer, or removes it if value is nil, and returns when the
	// broker has stored that as safely as a record. Values take effect in the order of Write.
	// What may heal is retried until ctx ends; then the value may or may not have been replaced,
	// and a later Write still replaces it. Any other error wraps ErrFatal, and nothing more can
	// be written.
	Write(ctx context.Context, writer string, value []byte) error

	// NextIdentity returns an identity for a Writer of the Sink that ranks above those given,
	// which earlier calls have returned, here or in other processes, the newest last: once a
	// Writer that has it has written to a part of a destination, the broker refuses there what a
	// Writer with a lower one still sends. It returns nil without an error if the broker has no
	// such order. Two processes that give the same ones may get the same: they must agree by
	// other means on who uses it. What may heal is retried until ctx ends.
	NextIdentity(ctx context.Context, given ...[]byte) ([]byte, error)
}

// A StoredValue is a value of a PositionStore.
type StoredValue struct {
	Writer string // a UUID; "" is that of versions that had one value for all
	Value  []byte
}
