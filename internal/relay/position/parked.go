package position

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A ParkedKeys stores the set of parked keys beside the position record, for the owner of the store. During an ownership its exported
// methods may be called from any goroutine.
type ParkedKeys struct {
	store *Store
	set   *parking.Set // nil: the relay parks no keys

	storing chan struct{}   // cap 1; a mutex, with a context
	record  *parking.Record // as last stored or read; protected by storing after beginOwnership

	mu       sync.Mutex
	obsolete []string // requests to remove when the set is stored, because no key is parked
}

// beginOwnership takes over the set in found, which no earlier owner can change any more.
func (k *ParkedKeys) beginOwnership(found *Found) {
	if found.Parked != nil { // otherwise the store has lost it
		k.record = found.Parked
	}
	var obsolete []string
	if !k.record.HasKeys() {
		for _, r := range found.Requests {
			obsolete = append(obsolete, r.ID)
		}
	}
	k.setObsolete(obsolete)
}

// toRemove returns the requests to remove.
func (k *ParkedKeys) toRemove() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.obsolete
}

func (k *ParkedKeys) setObsolete(requests []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.obsolete = requests
}

// startOwnership sets the set for an ownership: see [parking.Set.StartOwnership]. A key is a value of a row, so the log has the id of its parking
// instead.
func (k *ParkedKeys) startOwnership(start, next checkpoint.Position) {
	if k.set == nil {
		return
	}
	dropped := k.set.StartOwnership(start, next, k.record)
	if len(dropped) == 0 {
		return
	}
	records := 0
	for _, p := range dropped {
		records += p.Records
	}
	first := &dropped[0]
	k.store.log.Info("keys not parked any more, their rows are read again, and parked again if the first one still cannot be delivered",
		slog.Int("number", len(dropped)), slog.Int("records", records), slog.String("topic", first.Topic), slog.String("id", first.ShortID()))
}

// Store stores the set if it has changed, and returns when the store has acknowledged it. A change of the counts only is stored if
// counts is set.
func (k *ParkedKeys) Store(ctx context.Context, counts bool) error {
	if k.store.values == nil || !k.set.Pending(counts) && len(k.toRemove()) == 0 {
		return nil
	}
	unlock, err := lockWith(ctx, k.storing)
	if err != nil {
		return err
	}
	defer unlock()
	if k.set.Pending(counts) {
		if err := k.write(ctx, ""); err != nil {
			return err
		}
	}
	for _, request := range k.toRemove() {
		if err := k.store.Post(ctx, request, nil); err != nil {
			return err
		}
	}
	k.setObsolete(nil)
	return nil
}

// Restore stores the set, which the store has lost or not had yet.
func (k *ParkedKeys) Restore(ctx context.Context) error {
	unlock, err := lockWith(ctx, k.storing)
	if err != nil {
		return err
	}
	defer unlock()
	return k.write(ctx, "")
}

// write stores the set without the parking with the id without. k.storing is locked.
func (k *ParkedKeys) write(ctx context.Context, without string) error {
	rec, version := k.set.Record(without)
	value, err := rec.Marshal()
	if err != nil {
		return err
	}
	if err := k.store.owner.Write(ctx, sink.ParkedKey, value); err != nil {
		return fmt.Errorf("store the parked keys: %w", err)
	}
	k.record = &rec
	k.set.Stored(version)
	return nil
}

// Unpark stores the set without a parking, and then removes it from the set. No record of the key may be in
// flight or be sent meanwhile.
func (k *ParkedKeys) Unpark(ctx context.Context, id string) error {
	unlock, err := lockWith(ctx, k.storing)
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.write(ctx, id); err != nil {
		return err
	}
	k.set.Unpark(id)
	return nil
}
