// Package positiontest has position stores in the memory of a test, and ownerships that write to them.
package positiontest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Store is a [sink.PositionStore] whose writes can wait for the test. Its fields may be changed while no method runs.
type Store struct {
	Values []sink.StoredValue
	Writes int
	OnOwn  func()                      // called before there is a new owner; nil: nothing
	Allow  chan error                  // a write waits for a value and returns it; nil: no waiting
	Silent bool                        // Read blocks until its context ends
	Refuse error                       // the error that Read returns, unless nil
	Order  func(context.Context) error // CheckOrder; nil: it returns nil

	mu    sync.Mutex
	owner *owner
}

// Read implements [sink.PositionStore].
func (s *Store) Read(ctx context.Context) ([]sink.StoredValue, error) {
	if s.Silent {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Refuse != nil {
		return nil, s.Refuse
	}
	return slices.Clone(s.Values), nil
}

// Own implements [sink.PositionStore].
func (s *Store) Own(context.Context) (sink.Owner, error) {
	if s.OnOwn != nil {
		s.OnOwn()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = &owner{s}
	return s.owner, nil
}

// Post implements [sink.PositionStore].
func (s *Store) Post(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Values = slices.DeleteFunc(s.Values, func(v sink.StoredValue) bool { return v.Key == key })
	if value != nil {
		s.Values = append(s.Values, sink.StoredValue{Key: key, Value: value})
	}
	s.Writes++
	return nil
}

// CheckOrder implements [sink.PositionStore].
func (s *Store) CheckOrder(ctx context.Context) error {
	if s.Order == nil {
		return nil
	}
	return s.Order(ctx)
}

// An owner is an owner of a Store.
type owner struct{ store *Store }

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	if o.store.Allow != nil {
		select {
		case err := <-o.store.Allow:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	o.store.mu.Lock()
	newest := o.store.owner
	o.store.mu.Unlock()
	if newest != o {
		return sink.ErrSuperseded
	}
	return o.store.Post(ctx, key, value)
}

// Position returns the newest position record.
func (s *Store) Position(tb testing.TB) checkpoint.Position {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var p checkpoint.Position
	for _, v := range s.Values {
		if v.Key == sink.PositionKey {
			if err := json.Unmarshal(v.Value, &p); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return p
}
