package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A storeState is the content of the position store.
type storeState struct {
	position *checkpoint.Position // nil: none
	parked   parkedState
}

// readStore reads the position store. If the store has lost the position record, the result has what this process has stored.
func (w *positionWriter) readStore(ctx context.Context) (*storeState, error) {
	if w.store == nil {
		return w.parseStore(ctx, nil)
	}
	values, err := w.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	return w.parseStore(ctx, values)
}

// parseStore returns what readStore does, from the values of the store.
func (w *positionWriter) parseStore(ctx context.Context, values []sink.StoredValue) (*storeState, error) {
	found := &storeState{}
	w.mu.Lock()
	if stored := w.stored; stored.EndLSN != 0 || stored.Copying || stored.Refill != nil {
		found.position = &stored
	}
	w.mu.Unlock()
	foreign := func(v sink.StoredValue, err error) { w.warnForeign(ctx, v, err) }
	if err := w.parked.take(values, &found.parked, foreign); err != nil {
		return nil, fmt.Errorf("%w: %w", errPositionRecord, err)
	}
	for _, v := range values {
		if v.Key != sink.PositionKey {
			continue
		}
		var p checkpoint.Position
		switch err := json.Unmarshal(v.Value, &p); {
		case err == nil:
			found.position = &p
		case errors.Is(err, checkpoint.ErrLaterVersion):
			return nil, fmt.Errorf("%w: %s: %w", errPositionRecord, v.Place, err)
		default:
			foreign(v, err)
		}
	}
	return found, nil
}

// warnForeign logs, once, that a value in the position store is ignored because no relay wrote it.
func (w *positionWriter) warnForeign(ctx context.Context, v sink.StoredValue, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign {
		return
	}
	w.foreign = true
	w.log.WarnContext(ctx, "foreign record in the position store ignored", slog.String("record", v.Place), slog.Any("reason", err))
}

// ownStore makes this process the owner of the position store, and returns what the store has then: no earlier owner can
// change it any more.
func (w *positionWriter) ownStore(ctx context.Context) (*storeState, error) {
	if w.store == nil {
		return w.readStore(ctx)
	}
	owner, err := w.store.Own(ctx)
	if err != nil {
		return nil, err
	}
	w.owner = owner
	return w.readStore(ctx)
}

// beginTenure makes this process the owner, and writes the first record of a tenure on s: the newest one that is stored. When it
// returns, no earlier owner can write, and every later one finds the record.
func (w *positionWriter) beginTenure(ctx context.Context, s checkpoint.Server) error {
	first := w.owner == nil
	w.enterState(recordUnread)
	found, err := w.ownStore(ctx)
	if err != nil {
		return err
	}
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, Term: found.parked.record.NextTerm()}
	if found.position != nil {
		p = *found.position
		if first {
			w.log.InfoContext(ctx, "position record found", slog.String("end_lsn", p.EndLSN.String()),
				slog.Int("timeline", int(p.Timeline)), slog.Time("written_at", p.WrittenAt))
		}
	}
	p.KeysParked = found.parked.record.HasKeys() || w.parked.record.HasKeys() // not an empty set, which may be lost
	p.Publication = cmp.Or(w.publication(), p.Publication)
	p.Tenure++
	if err := w.persist(ctx, &p); err != nil {
		return err
	}
	w.stored = p
	w.parked.beginTenure(&found.parked)
	return nil
}

// checkGap returns the *checkpoint.GapError that chooseStart would return. It is called before beginTenure, so that a relay that is
// connected to the wrong server does not shut out the one on the right server.
func (w *positionWriter) checkGap(found *storeState, s checkpoint.Server) error {
	if p := found.position; p == nil || p.EndLSN == 0 && p.Refill == nil || w.acceptGap {
		return nil
	}
	_, err := found.position.Continue(s)
	return err
}

// canContinue returns nil if the current tenure may continue on s, as long as this process is the owner: the timeline is the same,
// and the slot is not ahead of the record.
func (w *positionWriter) canContinue(s checkpoint.Server) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch _, err := w.next.Continue(s); {
	case w.next.Timeline != s.Timeline:
		return errPromoted
	default:
		return err
	}
}

// proveOwner writes the newest record again. The error wraps [sink.ErrSuperseded] if another process has become the owner.
func (w *positionWriter) proveOwner(ctx context.Context) error {
	unlock, err := lockWith(ctx, w.recording)
	if err != nil {
		return err
	}
	defer unlock()
	w.mu.Lock()
	next := w.next
	w.mu.Unlock()
	return w.storeLocked(ctx, next)
}
