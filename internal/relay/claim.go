package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A storeState is the content of the position store.
type storeState struct {
	position   *checkpoint.Position // the valid position record; nil: none
	own        int64                // the claim of this process, or its last attempt; 0: none
	others     int64                // the highest claim of other processes
	identities [][]byte             // of the claims, in the order of addClaims
	writers    []string             // writers with a record
	parked     parkedState
}

func (f *storeState) highest() int64 { return max(f.own, f.others) }

// owns reports whether claim is the claim of this process, and no other claim is as high.
func (f *storeState) owns(claim int64) bool { return f.own == claim && f.others < claim }

// readStore reads the records of all processes. The result also includes what this process has stored,
// even if the store has lost it.
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
	w.mu.Lock()
	stored := w.stored
	w.mu.Unlock()
	found := &storeState{}
	if w.store == nil {
		found.own = stored.Claim
	}
	var records, claims []checkpoint.Position
	if stored.EndLSN != 0 || stored.Copying || stored.Refill != nil {
		records = append(records, stored)
	}
	values, err := w.parked.take(values, &found.parked)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPositionRecord, err)
	}
	for i, v := range values {
		p, err := parsePosition(v)
		switch {
		case err == nil:
		case v.Writer == "" && i+1 < len(values): // may have been written by another program, long ago
			continue
		case errors.Is(err, checkpoint.ErrLaterVersion):
			return nil, fmt.Errorf("%w: %s: %w", errPositionRecord, v.Place, err)
		default:
			w.warnForeign(ctx, v, err)
			continue
		}
		records = append(records, p)
		found.writers = append(found.writers, v.Writer)
		if p.Claim > 0 && v.Writer != "" {
			claims = append(claims, p)
		}
	}
	found.addClaims(claims, w.writer)
	// Records may be on the wire under our own identity, and only a higher one fences them. The store may
	// have lost our claim.
	if stored.Claim > 0 && stored.Claim >= found.highest() {
		found.identities = append(found.identities, stored.Identity)
	}
	found.position = checkpoint.NewestPosition(records)
	return found, nil
}

// parsePosition parses a position record. The error wraps [checkpoint.ErrLaterVersion] for a record of a
// later version. Any other error means that no relay has written v.
func parsePosition(v sink.StoredValue) (p checkpoint.Position, err error) {
	if err := json.Unmarshal(v.Value, &p); err != nil {
		return p, err
	}
	switch {
	case v.Writer == "":
	case p.Claim > 0 && p.Writer != v.Writer:
		return p, errors.New("its claim and its key have different writers")
	case p.Claim == 0 && p.EndLSN != 0:
		return p, errors.New("it has a position without a claim")
	}
	return p, nil
}

// warnForeign logs, once, that a value in the position topic is ignored because no relay wrote it.
func (w *positionWriter) warnForeign(ctx context.Context, v sink.StoredValue, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign {
		return
	}
	w.foreign = true
	w.log.WarnContext(ctx, "foreign record in the position store ignored", slog.String("record", v.Place),
		slog.String("reason", err.Error()))
}

// addClaims adds the claims of all processes. writer is this process. It sorts the identities so that the
// last one is the newest under which records may be on the wire. Claims are sorted by term first: a process
// that found no record, and stored its first claim late, has sent nothing in the term before its first. Of
// two equal claims, that of the other process is newer: this process would have seen it and not sent.
func (f *storeState) addClaims(claims []checkpoint.Position, writer string) {
	for _, p := range claims {
		if p.Writer == writer {
			f.own = p.Claim
		} else {
			f.others = max(f.others, p.Claim)
		}
	}
	slices.Reverse(claims) // of two equal claims of others, the one that was stored first is newer
	slices.SortStableFunc(claims, func(a, b checkpoint.Position) int {
		switch order := cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Claim, b.Claim)); {
		case order != 0:
			return order
		case a.Writer == writer:
			return -1
		case b.Writer == writer:
			return 1
		}
		return 0
	})
	for _, p := range claims {
		f.identities = append(f.identities, p.Identity)
	}
}

// claim writes a claim of the slot of s that is higher than every claim in found, with the position in
// found. When it returns, every process that acquires the slot later reads the claim.
//
// If two processes claim at the same time, then, of the two, at most one reads its claim back without
// seeing a new claim of the other; that other one claims again. So no two writers share an identity.
func (w *positionWriter) claim(ctx context.Context, found *storeState, s checkpoint.Server) error {
	if p := found.position; p != nil && w.tried == 0 {
		w.log.InfoContext(ctx, "position record found", slog.String("end_lsn", p.EndLSN.String()),
			slog.Int("timeline", int(p.Timeline)), slog.Time("written_at", p.WrittenAt))
	}
	w.enterState(recordUnread)
	for {
		p, err := w.writeClaim(ctx, found, s)
		if err != nil {
			return err
		}
		if w.store != nil {
			before := found.highest()
			if found, err = w.readStore(ctx); err != nil {
				return err
			}
			if found.own != p.Claim { // the response came from a broker that is no longer the leader
				return fmt.Errorf("%w: the position store does not return the claim that it has acknowledged", sink.ErrUnreachable)
			}
			if found.others > before { // another process claims at the same time
				continue
			}
		}
		if p.EndLSN == 0 { // nothing may be sent in the term before the first: see addClaims
			p.Term++
			if err := w.persist(ctx, p); err != nil {
				return err
			}
		}
		w.stored = *p
		w.parked.claim(&found.parked)
		w.replace = slices.DeleteFunc(found.writers, func(writer string) bool { return writer == w.writer })
		return nil
	}
}

// writeClaim writes a claim that is higher than every claim in found and every earlier attempt. Each attempt
// has its own key, because another process may still remove the value of an earlier key.
func (w *positionWriter) writeClaim(ctx context.Context, found *storeState, s checkpoint.Server) (*checkpoint.Position, error) {
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot}
	if found.position != nil {
		p = *found.position
	}
	p.KeysParked = found.parked.record.HasKeys() || w.parked.record.HasKeys() // the tenure may remove an empty set
	w.writer = uuid.NewString()
	w.tried = max(w.tried, found.highest()) + 1
	p.Claim, p.Writer, p.Identity = w.tried, w.writer, nil
	if w.store != nil {
		var err error
		if p.Identity, err = w.store.NextIdentity(ctx, found.identities...); err != nil {
			return nil, err
		}
	}
	return &p, w.persist(ctx, &p)
}

// checkGap returns the *checkpoint.GapError that chooseStart would return after a claim. It is called before
// the claim, so that a relay that is connected to the wrong server does not interrupt the one on the right
// server.
func (w *positionWriter) checkGap(found *storeState, s checkpoint.Server) error {
	if p := found.position; p == nil || p.EndLSN == 0 && p.Refill == nil || w.acceptGap || w.store == nil {
		return nil
	}
	_, err := found.position.Continue(s)
	return err
}

// canContinue returns nil if the current tenure may continue on s: according to found no other process has
// claimed the slot, the timeline is the same, and the slot is not ahead of the record.
func (w *positionWriter) canContinue(found *storeState, s checkpoint.Server) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	record := w.stored
	if w.state == recordObsolete {
		record = w.next
	}
	switch _, err := record.Continue(s); {
	case !found.owns(record.Claim):
		return errForeignClaim
	case record.Timeline != s.Timeline:
		return errPromoted
	default:
		return err
	}
}

// dropReplaced removes the records that the claim replaces. It replaces the record of a version without
// claims by one that such a version rejects, because it would ignore the claims.
func (w *positionWriter) dropReplaced(ctx context.Context) error {
	for _, writer := range w.replace {
		var value []byte
		if writer == "" {
			var err error
			if value, err = json.Marshal(w.stored); err != nil {
				return err
			}
		}
		if err := w.store.Write(ctx, writer, value); err != nil {
			return err
		}
	}
	w.replace = w.replace[:0]
	return nil
}

// watchClaims is checkClaim, but it logs an error that the relay can retry instead of returning it. A foreign
// claim is then detected later.
func (w *positionWriter) watchClaims(ctx context.Context) error {
	err := w.checkClaim(ctx)
	if err == nil || errors.Is(err, errForeignClaim) || faultOf(err).patience == never {
		w.unwatched = false
		return err
	}
	if !w.unwatched && ctx.Err() == nil {
		w.unwatched = true
		w.log.WarnContext(ctx, "cannot read the position store, another relay may be detected late", slog.Any("err", err))
	}
	return nil
}

// checkClaim returns errForeignClaim if this process no longer has the highest claim.
func (w *positionWriter) checkClaim(ctx context.Context) error {
	found, err := w.readStore(ctx)
	if err != nil {
		return err
	}
	if !found.owns(w.stored.Claim) {
		return fmt.Errorf("%w: claim %d, ours is %d", errForeignClaim, found.others, w.stored.Claim)
	}
	return nil
}
