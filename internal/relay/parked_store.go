package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errKeysParked: keys are parked, and the configuration has the relay park no keys. It would send later records
// of these keys ahead of the parked ones.
var errKeysParked = errors.New("keys are parked, but on_bad_record is not park")

// A parkedState is what the position topic has about parked keys.
type parkedState struct {
	record   *parking.Record // the valid set; nil: none
	requests []parking.Request
}

// A parkedStore stores the set of parked keys in the position topic. It belongs to a positionWriter.
type parkedStore struct {
	set *parking.Set // nil: the relay parks no keys

	storing chan struct{}   // cap 1; a mutex for storeParked and releaseKey, with a context
	record  *parking.Record // as last stored or read; protected by storing after beginTenure

	mu       sync.Mutex
	obsolete []string                // requests to remove when the set is stored, because no key is parked
	parsed   map[valueID]parsedValue // so that a large set is not parsed again at each read
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

func newParkedStore() *parkedStore {
	return &parkedStore{storing: make(chan struct{}, 1), parsed: make(map[valueID]parsedValue)}
}

// take adds what values have about parked keys to found. It calls foreign for those that no relay or operator has written. An error
// is about a value of a later version.
func (s *parkedStore) take(values []sink.StoredValue, found *parkedState, foreign func(sink.StoredValue, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	parsed := make(map[valueID]parsedValue, len(s.parsed))
	for _, v := range values {
		if v.Key == sink.PositionKey {
			continue
		}
		id := valueID{v.Place, v.Key, sha256.Sum256(v.Value)}
		p, known := s.parsed[id]
		if !known {
			p.value, p.err = parking.Parse(v.Key, v.Value)
		}
		parsed[id] = p
		switch {
		case errors.Is(p.err, checkpoint.ErrLaterVersion):
			return fmt.Errorf("%s: %w", v.Place, p.err)
		case p.err != nil:
			foreign(v, p.err)
		case p.value.Request != nil:
			found.requests = append(found.requests, *p.value.Request)
		default:
			found.record = p.value.Record
		}
	}
	s.parsed = parsed
	return nil
}

// beginTenure takes over the set in found, which no earlier owner can change any more.
func (s *parkedStore) beginTenure(found *parkedState) {
	if found.record != nil { // otherwise the store has lost it
		s.record = found.record
	}
	var obsolete []string
	if !s.record.HasKeys() {
		s.record = nil
		for _, r := range found.requests {
			obsolete = append(obsolete, r.ID)
		}
	}
	s.setObsolete(obsolete)
}

// toRemove returns the requests to remove.
func (s *parkedStore) toRemove() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.obsolete
}

func (s *parkedStore) setObsolete(requests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.obsolete = requests
}

// startTenure sets the set for a tenure: see [parking.Set.StartTenure].
func (s *parkedStore) startTenure(start, next checkpoint.Position) {
	if s.set != nil {
		s.set.StartTenure(start, next, s.record)
	}
}

// checkParked returns errKeysParked if found has parked keys and the relay parks none.
func (r *Relay) checkParked(found *storeState) error {
	if rec := found.parked.record; r.positions.parked.set == nil && rec.HasKeys() {
		return fmt.Errorf("%w: %d keys, such as one of topic %s", errKeysParked, len(rec.Parkings), rec.Parkings[0].Topic)
	}
	return nil
}

// storeParked stores the set of parked keys if it has changed, and returns when the store has acknowledged it. A
// change of the counts only is stored if counts is set.
func (w *positionWriter) storeParked(ctx context.Context, counts bool) error {
	s := w.parked
	if w.store == nil || !s.set.Pending(counts) && len(s.toRemove()) == 0 {
		return nil
	}
	unlock, err := lockWith(ctx, w.parked.storing)
	if err != nil {
		return err
	}
	defer unlock()
	if s.set.Pending(counts) {
		if err := w.writeParked(ctx, ""); err != nil {
			return err
		}
	}
	for _, request := range s.toRemove() {
		if err := w.store.Post(ctx, request, nil); err != nil {
			return err
		}
	}
	s.setObsolete(nil)
	return nil
}

// restoreParked stores the set, which the position topic has lost or not had yet.
func (w *positionWriter) restoreParked(ctx context.Context) error {
	unlock, err := lockWith(ctx, w.parked.storing)
	if err != nil {
		return err
	}
	defer unlock()
	return w.writeParked(ctx, "")
}

// writeParked stores the set without the parking with the id without. w.parked is locked.
func (w *positionWriter) writeParked(ctx context.Context, without string) error {
	rec, version := w.parked.set.Record(without)
	value, err := rec.Marshal()
	if err != nil {
		return err
	}
	if err := w.owner.Write(ctx, sink.ParkedKey, value); err != nil {
		return fmt.Errorf("store the parked keys: %w", err)
	}
	w.parked.record = &rec
	w.parked.set.Stored(version)
	return nil
}

// unparkKey stores the set without a parking, and then removes it from the set. No record of the key may be in
// flight or be sent meanwhile.
func (w *positionWriter) unparkKey(ctx context.Context, id string) error {
	unlock, err := lockWith(ctx, w.parked.storing)
	if err != nil {
		return err
	}
	defer unlock()
	if err := w.writeParked(ctx, id); err != nil {
		return err
	}
	w.parked.set.Unpark(id)
	return nil
}
