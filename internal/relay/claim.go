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

// A survey is what the store holds.
type survey struct {
	position   *checkpoint.Position // the record whose position counts; nil: there is none
	own        int64                // the present claim of this process, or its last attempt; 0: none
	others     int64                // the highest of all other claims
	identities [][]byte             // of the claims, in the order of addClaims
	writers    []string             // all that have a record
}

func (f *survey) highest() int64 { return max(f.own, f.others) }

// owns reports whether this process has the slot under its claim: no other one is as high.
func (f *survey) owns(claim int64) bool { return f.own == claim && f.others < claim }

// survey reads what this and other processes have left. What this process has stored counts although
// the store may have lost it.
func (w *positionWriter) survey(ctx context.Context) (*survey, error) {
	var values []sink.StoredValue
	if w.store != nil {
		var err error
		if values, err = w.store.Read(ctx); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	stored := w.stored
	w.mu.Unlock()
	found := &survey{}
	if w.store == nil {
		found.own = stored.Claim
	}
	var records, claims []checkpoint.Position
	if stored.EndLSN != 0 || stored.Copying {
		records = append(records, stored)
	}
	for i, v := range values {
		p, err := parsePosition(v)
		switch {
		case err == nil:
		case v.Writer == "" && i+1 < len(values): // a program before this one was another one
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
	// Under ours records may be on the wire, which only the same identity fences. It may also be lost.
	if stored.Claim > 0 && stored.Claim >= found.highest() {
		found.identities = append(found.identities, stored.Identity)
	}
	found.position = checkpoint.NewestPosition(records)
	return found, nil
}

// parsePosition returns the position record that v is. Its error wraps [checkpoint.ErrLaterVersion], or
// v is nothing that a relay has written.
func parsePosition(v sink.StoredValue) (p checkpoint.Position, err error) {
	if err := json.Unmarshal(v.Value, &p); err != nil {
		return p, err
	}
	switch {
	case v.Writer == "":
	case p.Claim > 0 && p.Writer != v.Writer:
		return p, errors.New("a claim of another writer than its key has")
	case p.Claim == 0 && p.EndLSN != 0:
		return p, errors.New("a position without the claim of its writer")
	}
	return p, nil
}

// warnForeign logs once that a value which is no position record is ignored.
func (w *positionWriter) warnForeign(ctx context.Context, v sink.StoredValue, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign {
		return
	}
	w.foreign = true
	w.log.WarnContext(ctx, "foreign record in the position topic ignored", slog.String("record", v.Place),
		slog.String("reason", err.Error()))
}

// addClaims notes who has claimed; writer is this process. The newest identity has to be that under which
// records may be on the wire. It is not that of a claim which a process that had found none stored late:
// nothing is sent in the term before the first. Of two with one claim it is the other process's, since this
// one would have seen that and not sent.
func (f *survey) addClaims(claims []checkpoint.Position, writer string) {
	for _, p := range claims {
		if p.Writer == writer {
			f.own = p.Claim
		} else {
			f.others = max(f.others, p.Claim)
		}
	}
	slices.Reverse(claims) // of two others the one that was stored first
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

// claim makes this process the owner of the slot of s, above every claim that was found, with the
// position that was found. When it returns, whoever gets the slot later reads the claim.
//
// Of two processes that claim at the same time at most one sees, when it reads its claim back, no other
// claim above those from which it has made its identity. So no two writers share an identity.
func (w *positionWriter) claim(ctx context.Context, found *survey, s checkpoint.Server) error {
	if p := found.position; p != nil && w.tried == 0 {
		w.log.InfoContext(ctx, "position of an earlier run", slog.String("end_lsn", p.EndLSN.String()),
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
			if found, err = w.survey(ctx); err != nil {
				return err
			}
			if found.own != p.Claim { // it comes from a broker that is no leader any more
				return fmt.Errorf("%w: the position store does not show the claim that it has acknowledged", sink.ErrUnreachable)
			}
			if found.others > before { // somebody claims at the same time: who has the slot goes on
				continue
			}
		}
		if p.EndLSN == 0 { // nothing is sent in the term before: see addClaims
			p.Term++
			if err := w.persist(ctx, p); err != nil {
				return err
			}
		}
		w.stored = *p
		w.replace = slices.DeleteFunc(found.writers, func(writer string) bool { return writer == w.writer })
		return nil
	}
}

// writeClaim writes a claim above every one that was found or tried. Each has a key of its own: others
// may remove late what is stored under an earlier one.
func (w *positionWriter) writeClaim(ctx context.Context, found *survey, s checkpoint.Server) (*checkpoint.Position, error) {
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot}
	if found.position != nil {
		p = *found.position
	}
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

// refuses returns the *checkpoint.GapError with which chooseStart would fail after a claim: a relay that
// has met the wrong server does not take the slot of the right one.
func (w *positionWriter) refuses(found *survey, s checkpoint.Server) error {
	if found.position == nil || found.position.EndLSN == 0 || w.acceptGap || w.store == nil {
		return nil
	}
	_, err := found.position.Continue(s)
	return err
}

// continues reports whether the present tenure may go on with a server that is found as s: nobody else
// was there, according to found, and nothing has moved.
func (w *positionWriter) continues(found *survey, s checkpoint.Server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	record := w.stored
	if w.state == recordObsolete {
		record = w.next
	}
	_, err := record.Continue(s)
	return err == nil && found.owns(record.Claim) && record.Timeline == s.Timeline
}

// dropReplaced removes the records that the claim replaces. What versions without claims have written
// is replaced by a record that they refuse: they would not see the claims.
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

// watchClaims is checkClaim, but for a store that may not be read for a while: a foreign claim is noticed
// later then.
func (w *positionWriter) watchClaims(ctx context.Context) error {
	err := w.checkClaim(ctx)
	if err == nil || errors.Is(err, errForeignClaim) || faultOf(err).patience == never {
		w.unwatched = false
		return err
	}
	if !w.unwatched && ctx.Err() == nil {
		w.unwatched = true
		w.log.WarnContext(ctx, "claims not watched: another instance is noticed later", slog.Any("err", err))
	}
	return nil
}

// checkClaim returns errForeignClaim if this process has not the highest claim any more.
func (w *positionWriter) checkClaim(ctx context.Context) error {
	found, err := w.survey(ctx)
	if err != nil {
		return err
	}
	if !found.owns(w.stored.Claim) {
		return fmt.Errorf("%w: claim %d, ours is %d", errForeignClaim, found.others, w.stored.Claim)
	}
	return nil
}
