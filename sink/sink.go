package sink

import (
	"context"
	"errors"
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

	// OpenPositions opens store, a place of the broker, and creates it if it is missing. The
	// PositionStore keeps its values there under name. OpenPositions retries transient errors
	// until ctx ends; errors that wrap ErrAccess or ErrFatal are not transient. The PositionStore
	// is valid until Close. It does not wait for a Writer's records and does not delay them.
	OpenPositions(ctx context.Context, store, name string) (PositionStore, error)

	// CheckDestinations returns an error that wraps ErrMissing and names those of the given
	// destinations that do not exist and may not be created, or an error that wraps ErrAccess if
	// one of them may not be seen or written. Writing does not need it: a Writer waits for a missing
	// destination.
	CheckDestinations(ctx context.Context, destinations ...string) error

	// Stat returns a snapshot of the Sink, its current Writer and its position stores. It does
	// not block.
	Stat() Stat

	// Close ends the Sink and its position stores. Run of every Writer must have returned.
	Close() error
}

// A PositionStore keeps one value per writer outside the process: a small state that must outlive
// it, written rarely and read at the start. Its methods may be called from any goroutine. They
// retry transient errors until ctx ends.
type PositionStore interface {
	// Read returns the newest value of each writer, in the order in which they were stored. It
	// sees every value that was acknowledged before the call. For the writer "" it may also
	// return values that a newer one has replaced. A record with headers is no value, whatever its key:
	// a Writer has made it of a row.
	Read(ctx context.Context) ([]StoredValue, error)

	// Write replaces the value of a writer, or removes it if value is nil. It returns when the
	// broker has stored the change as safely as a record. Values take effect in the order of
	// Write. If ctx ends first, the value may or may not have been replaced, and a later Write
	// replaces it. Any other error wraps ErrFatal: nothing more can be written.
	Write(ctx context.Context, writer string, value []byte) error

	// NextIdentity returns an identity for a Writer of the Sink that ranks above the given ones.
	// Earlier calls, in this process or others, have returned those; the newest is last. Once a
	// Writer with an identity has written to a part of a destination, the broker rejects there
	// the records of Writers with a lower one. NextIdentity returns nil without an error if the
	// broker does not order identities. Two processes that pass the same identities may get the
	// same result, so they must agree by other means on which of them uses it.
	NextIdentity(ctx context.Context, given ...[]byte) ([]byte, error)

	// CheckOrder has the broker show that it keeps the order of identities: it writes to the place of
	// the store, as an older and as a newer Writer, what Read does not return. The error wraps
	// ErrOlderAccepted if the broker accepts the older one, or has no such order, and ErrNewerRejected
	// if it rejects the newer one; any other says nothing about that. What may heal is retried until
	// ctx ends.
	CheckOrder(ctx context.Context) error
}

// What [PositionStore.CheckOrder] finds wrong.
var (
	// ErrOlderAccepted: what an older Writer sends is stored behind what a newer one has written.
	ErrOlderAccepted = errors.New("the broker accepts records of an older writer after a newer one has written")

	// ErrNewerRejected: once an older Writer has written, a newer one cannot.
	ErrNewerRejected = errors.New("the broker rejects records of a newer writer after an older one has written")
)

// A StoredValue is a value of a PositionStore.
type StoredValue struct {
	Writer string // a UUID; "" for versions that had one value for all writers
	Value  []byte
	Place  string // where it is stored, for a person: topic, partition and offset
}
