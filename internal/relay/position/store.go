package position

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position/filestore"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// ErrRecord says that a later version of this program has written to the position store.
var ErrRecord = errors.New("the position record cannot be read")

// A Found is the content of a position store.
type Found struct {
	Position *checkpoint.Position // nil: none
	Others   []sink.StoredValue   // position records of other names
	Parked   *parking.Record      // the valid set of parked keys; nil: none
	Requests []parking.Request    // without a result
}

// A Store is the position store of a relay, in any place. Read and Post may be called from any goroutine, Stall and ReadFrom also
// before Open.
type Store struct {
	place Place
	name  string // of the relay
	log   *slog.Logger
	file  *filestore.Store // nil: the place is no file

	values sink.PositionStore // nil: the place is nowhere, or the store is not open
	owner  sink.Owner         // of values, since the last own

	mu      sync.Mutex
	foreign bool                    // warnForeign has logged
	parsed  map[valueID]parsedValue // so that a large set of parked keys is not parsed again at each read
}

// A valueID identifies a stored value. Its place is not enough: a topic that was re-created has other values there.
type valueID struct {
	place, key string
	sum        [sha256.Size]byte
}

// A parsedValue is the result of [parking.Parse].
type parsedValue struct {
	value parking.Value
	err   error
}

// NewStore returns the Store in a place of the relay called name.
func NewStore(place Place, name string, log *slog.Logger) *Store {
	s := &Store{place: place, name: name, log: log}
	if place.File != "" {
		s.file = filestore.New(place.File, name, log)
	}
	return s
}

// Open opens the store, and creates one that is missing. on is the connection to the broker, which must outlive the Store. A relay
// whose place is nowhere need not call it.
func (s *Store) Open(ctx context.Context, on sink.Sink) (err error) {
	switch {
	case s.file != nil:
		if err := s.file.Open(ctx); err != nil {
			return err
		}
		s.values = s.file
	case s.place.Topic != "":
		s.values, err = sink.OpenPositions(ctx, on, s.place.Topic, s.name)
	}
	return err
}

// TestFile tests, if the place is a file, whether Open would succeed, and changes nothing: see [filestore.Store.Test].
func (s *Store) TestFile() error {
	if s.file == nil {
		return nil
	}
	return s.file.Test()
}

// Stall returns since when, and why, a store that is not at the broker cannot be read or written, or zero.
func (s *Store) Stall() (since time.Time, cause error) {
	if s.file == nil {
		return since, nil
	}
	return s.file.Stall()
}

// Read reads the store.
func (s *Store) Read(ctx context.Context) (*Found, error) {
	if s.values == nil {
		return &Found{}, nil
	}
	values, err := s.values.Read(ctx)
	if err != nil {
		return nil, err
	}
	return s.parse(ctx, values)
}

// ReadFrom is Read for a Store that is not open. It creates and changes nothing, and contacts the broker only if the store is there.
func (s *Store) ReadFrom(ctx context.Context, broker sink.Broker) (*Found, error) {
	var values []sink.StoredValue
	var err error
	switch {
	case s.file != nil:
		values, err = s.file.Read(ctx)
	case s.place.Topic != "":
		values, err = s.readBroker(ctx, broker)
	}
	if err != nil {
		return nil, err
	}
	return s.parse(ctx, values)
}

// readBroker returns the values of a store at the broker.
func (s *Store) readBroker(ctx context.Context, broker sink.Broker) ([]sink.StoredValue, error) {
	opened, err := sink.OpenReader(broker, s.log)
	if err != nil {
		return nil, err
	}
	reader, ok := opened.(sink.PositionReader)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, opened.Close())
	}
	values, err := reader.ReadPositions(ctx, s.place.Topic, s.name)
	return values, errors.Join(err, reader.Close())
}

// Post stores or removes a request: see [sink.PositionStore.Post].
func (s *Store) Post(ctx context.Context, request string, value []byte) error {
	return s.values.Post(ctx, request, value)
}

// CheckOrder tests whether the broker shuts out the writers of earlier owners: see [sink.PositionStore.CheckOrder].
func (s *Store) CheckOrder(ctx context.Context) error { return s.values.CheckOrder(ctx) }

// Owner returns the owner of the store in the current ownership. It is nil without a store.
func (s *Store) Owner() sink.Owner { return s.owner }

// becomeOwner makes this process the owner, and returns what the store has then: no earlier owner can change it any more.
func (s *Store) becomeOwner(ctx context.Context) (*Found, error) {
	if s.values != nil {
		owner, err := s.values.Own(ctx)
		if err != nil {
			return nil, err
		}
		s.owner = owner
	}
	return s.Read(ctx)
}

// parse returns what values say. It ignores those that no relay or operator has written. An error is about a value of a later
// version.
func (s *Store) parse(ctx context.Context, values []sink.StoredValue) (*Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := &Found{}
	parsed := make(map[valueID]parsedValue, len(s.parsed))
	for _, v := range values {
		var err error
		switch {
		case v.Other != "":
			found.Others = append(found.Others, v)
		case v.Key == sink.PositionKey:
			err = found.addPosition(v.Value)
		default:
			id := valueID{v.Place, v.Key, sha256.Sum256(v.Value)}
			p, known := s.parsed[id]
			if !known {
				p.value, p.err = parking.Parse(v.Key, v.Value)
			}
			parsed[id] = p
			err = found.addParked(p)
		}
		if errors.Is(err, checkpoint.ErrLaterVersion) {
			return nil, fmt.Errorf("%w: %s: %w", ErrRecord, v.Place, err)
		}
		if err != nil {
			s.warnForeign(ctx, v, err)
		}
	}
	s.parsed = parsed
	return found, nil
}

// otherName returns another name under which the position of the slot is recorded, or "". A slot that has confirmed more than the record
// was advanced or re-created since, and the record is not its own.
func (f *Found) otherName(s checkpoint.Server) string {
	for _, v := range f.Others {
		var p checkpoint.Position
		if json.Unmarshal(v.Value, &p) != nil { // not of a relay, or of a later version
			continue
		}
		if p.SystemID == s.SystemID && p.Slot == s.Slot && s.Confirmed <= p.EndLSN {
			return v.Other
		}
	}
	return ""
}

func (f *Found) addPosition(value []byte) error {
	var p checkpoint.Position
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	f.Position = &p
	return nil
}

func (f *Found) addParked(p parsedValue) error {
	switch {
	case p.err != nil:
		return p.err
	case p.value.Request != nil:
		f.Requests = append(f.Requests, *p.value.Request)
	default:
		f.Parked = p.value.Record
	}
	return nil
}

// warnForeign logs, once, that a value is ignored because no relay wrote it. s.mu is locked.
func (s *Store) warnForeign(ctx context.Context, v sink.StoredValue, err error) {
	if s.foreign {
		return
	}
	s.foreign = true
	s.log.WarnContext(ctx, "foreign record in the position store ignored", slog.String("record", v.Place), slog.Any("reason", err))
}

// lockWith locks a mutex, a channel with capacity 1, until the result is called.
func lockWith(ctx context.Context, mutex chan struct{}) (unlock func(), err error) {
	select {
	case mutex <- struct{}{}:
		return func() { <-mutex }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
