package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// ReadParkedKeys returns the valid set of parked keys of a relay, or nil if its position store has none: it has parked none, or the store is
// another one or was lost. It does not have keys that were parked before began, which is when the relay has begun to use the store; zero:
// unknown. ReadParkedKeys changes nothing. It uses Sink, Name and Positions of cfg.
func ReadParkedKeys(ctx context.Context, cfg Config, log *slog.Logger) (keys *parking.Record, began time.Time, err error) {
	found, err := position.NewStore(cfg.Positions, cfg.Name, log).ReadFrom(ctx, cfg.Sink)
	if err != nil {
		return nil, time.Time{}, err
	}
	if found.Position != nil {
		began = found.Position.Began
	}
	return found.Parked, began, nil
}

// ParkedKeys reads the parked keys of a relay from the position topic, and files requests there. It belongs to one
// goroutine.
type ParkedKeys struct {
	reached sink.Sink
	store   *position.Store
}

// OpenParkedKeys opens the position topic of a relay. It uses Sink, Name and Positions of cfg. The ParkedKeys must
// be closed.
func OpenParkedKeys(ctx context.Context, cfg Config, log *slog.Logger) (*ParkedKeys, error) {
	reached, err := cfg.Sink.Open(ctx, log)
	if err != nil {
		return nil, err
	}
	store := position.NewStore(cfg.Positions, cfg.Name, log)
	if err := store.Open(ctx, reached); err != nil {
		return nil, errors.Join(err, reached.Close())
	}
	return &ParkedKeys{reached, store}, nil
}

// Close closes the ParkedKeys.
func (k *ParkedKeys) Close() error { return k.reached.Close() }

// Read returns the valid set of parked keys, which is empty if there is none, and the requests without a result.
func (k *ParkedKeys) Read(ctx context.Context) (parking.Record, []parking.Request, error) {
	found, err := k.store.Read(ctx)
	if err != nil {
		return parking.Record{}, nil, err
	}
	if found.Parked == nil {
		return parking.Record{}, found.Requests, nil
	}
	return *found.Parked, found.Requests, nil
}

// File stores a request, for the relay to handle.
func (k *ParkedKeys) File(ctx context.Context, r parking.Request) error {
	value, err := r.Marshal()
	if err != nil {
		return err
	}
	return k.store.Post(ctx, r.ID, value)
}

// Withdraw removes a request. It has no effect if the relay is already handling it.
func (k *ParkedKeys) Withdraw(ctx context.Context, id string) error {
	return k.store.Post(ctx, id, nil)
}
