package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A Broker is the configuration of a broker. It does not contact the broker by itself.
type Broker interface {
	// Open connects to the broker for the first time and checks that we may write.
	//
	// If the broker rejects the credentials or the privileges, or its certificate does not verify,
	// Open returns an error that wraps ErrAccess without retrying. It retries a broker that it
	// cannot reach, with back-off, until ctx ends; the error then wraps ErrUnreachable. ctx limits
	// Open only, not the Sink. The caller must close the Sink.
	Open(ctx context.Context, log *slog.Logger) (Sink, error)

	// String returns the broker and its addresses for messages, without credentials.
	String() string
}

// A Sink is a connection to a broker. It outlives its Writers and has the state that they share. Its
// methods may be called from any goroutine.
type Sink interface {
	// NewWriter returns a new Writer. Run of the previous Writer must have returned.
	NewWriter(cfg WriterConfig) Writer

	// CheckDestinations returns an error that wraps ErrMissing and names the destinations that do
	// not exist and may not be created, or an error that wraps ErrAccess if we may not see or write one of
	// them. The check is optional, because a Writer waits for a missing destination.
	CheckDestinations(ctx context.Context, destinations ...string) error

	// Stat returns a snapshot of the Sink, its current Writer and the position stores at the broker. It does
	// not block.
	Stat() Stat

	// Close closes the Sink and its position stores. Run of every Writer must have returned.
	Close() error
}

// A PositionOpener is a [Sink] whose broker stores positions. It is optional. The [Reader] of such a broker is a [PositionReader].
type PositionOpener interface {
	Sink

	// OpenPositions opens the store named store (for Kafka, a compacted topic), and creates it if it
	// is missing. The PositionStore stores its values there under name. OpenPositions retries
	// transient errors until ctx ends; errors that wrap ErrAccess or ErrFatal are not transient. The
	// PositionStore is valid until Close. It does not wait for a Writer's records and does not
	// delay them.
	OpenPositions(ctx context.Context, store, name string) (PositionStore, error)
}

// OpenPositions calls OpenPositions of s. The error wraps [errors.ErrUnsupported] if s is no PositionOpener.
func OpenPositions(ctx context.Context, s Sink, store, name string) (PositionStore, error) {
	o, ok := s.(PositionOpener)
	if !ok {
		return nil, fmt.Errorf("%w: the broker stores no positions", errors.ErrUnsupported)
	}
	return o.OpenPositions(ctx, store, name)
}

// A PositionStore stores a few small values of a relay, so that they survive the process. Values are written rarely. The
// methods may be called from any goroutine, and retry transient errors until ctx ends.
type PositionStore interface {
	// Read returns the values, in the order in which they were stored. It returns every value that was acknowledged before
	// the call, unless it was replaced. It ignores records with headers: those are rows that somebody has sent to the place of
	// the store. If there is no position, and the place can be searched for them, the positions of other names follow, ordered by
	// name; a store may also return them beside a position.
	Read(ctx context.Context) ([]StoredValue, error)

	// Own makes the caller the owner of the values. When it has returned, Read returns all that earlier owners have written,
	// and no Write of theirs takes effect any more. A store that cannot shut out earlier owners by itself has them find out
	// at their next Write, which must follow the first Write of the new owner.
	Own(ctx context.Context) (Owner, error)

	// Post stores a value, or removes it if value is nil, without owning the values. It is for requests to the owner, each
	// with a key of its own.
	Post(ctx context.Context, key string, value []byte) error

	// CheckOrder tests whether the broker shuts out the Writers of earlier owners. It writes to the place of the store as an
	// older and as a newer owner; Read ignores these records. The error wraps ErrOlderAccepted if the broker accepts the older
	// one, ErrNewerRejected if it rejects the newer one, and errors.ErrUnsupported if it does not know owners. With any other
	// error the test has no result. CheckOrder retries transient errors until ctx ends.
	CheckOrder(ctx context.Context) error
}

// An Owner writes the values of a PositionStore until somebody else calls [PositionStore.Own], or the Sink is closed. Its methods
// may be called from any goroutine.
type Owner interface {
	// Write replaces the value of a key, or removes it if value is nil. It returns when the broker has stored the change as
	// safely as a record. Values take effect in the order of Write. If ctx ends first, the value may or may not be
	// replaced; a later Write still replaces it. The error wraps ErrSuperseded if there is a newer owner. Any other error
	// wraps ErrFatal, and the Owner cannot write any more.
	Write(ctx context.Context, key string, value []byte) error
}

// The results of [PositionStore.CheckOrder].
var (
	// ErrOlderAccepted: the broker stores records of an older Writer after those of a newer one.
	ErrOlderAccepted = errors.New("the broker accepts records of an older writer after a newer one has written")

	// ErrNewerRejected: after an older Writer has written, the broker rejects a newer one.
	ErrNewerRejected = errors.New("the broker rejects records of a newer writer after an older one has written")
)

// A StoredValue is a value of a PositionStore.
type StoredValue struct {
	Key   string // PositionKey, ParkedKey or the UUID of a request
	Value []byte
	Place string // topic, partition and offset, for messages
	Other string // the other name whose position this is; empty: it is of the name of the store
}

// InOrder returns values in the order of the numbers with which they were stored.
func InOrder(values map[uint64]StoredValue) []StoredValue {
	var ordered []StoredValue
	for _, number := range slices.Sorted(maps.Keys(values)) {
		ordered = append(ordered, values[number])
	}
	return ordered
}

// The keys of the values that an Owner writes.
const (
	PositionKey = "position"
	ParkedKey   = "parked"
)

// storeKey matches the keys of a PositionStore. Requests have UUIDs.
var storeKey = regexp.MustCompile(`^(position|parked|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// CutPosition returns the name from the place of its position, in a store that keeps a value under the name, a slash and the key. ok is
// false for any other place.
func CutPosition(place string) (name string, ok bool) {
	name, ok = strings.CutSuffix(place, "/"+PositionKey)
	return name, ok && name != ""
}

// IsStoreKey reports whether key may be a key of a PositionStore.
func IsStoreKey(key string) bool { return storeKey.MatchString(key) }
