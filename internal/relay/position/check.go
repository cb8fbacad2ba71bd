package position

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// The errors of [Starter.Check], beside a *[checkpoint.GapError] and that of published.
var (
	// ErrKeysParked: keys are parked, and the configuration has the relay park no keys. It would send later records
	// of these keys ahead of the parked ones.
	ErrKeysParked = errors.New("keys are parked, but on_bad_record is not park")

	// ErrParkedLost: the position topic has lost the parked keys. The relay would send later records of these keys ahead of
	// the parked ones.
	ErrParkedLost = errors.New("the position topic has lost the parked keys of this relay")

	// ErrLeftOut: the last relay stopped because the WAL lacks rows that a refill can send, and nobody has done that.
	ErrLeftOut = errors.New("the rows because of which the last relay stopped are not sent")
)

// Check returns the error with which a session on s ends because of what is stored. published is
// [catalog.State.CheckPublished] of the catalog as last read. Check is called before BeginOwnership, so that a relay that is connected
// to the wrong server does not shut out the one on the right server.
func (t *Starter) Check(ctx context.Context, found *Found, s checkpoint.Server, published func(recorded string) error) error {
	if t.parked.set == nil && found.Parked.HasKeys() {
		return fmt.Errorf("%w: one of topic %s, %d in all", ErrKeysParked, found.Parked.Parkings[0].Topic, len(found.Parked.Parkings))
	}
	p := found.Position
	if p == nil {
		return t.checkName(found, s)
	}
	if p.OfPrimary(s) && !t.acceptGap {
		return fmt.Errorf("%w: this server is a standby, and the position record of name %q is of its primary, from which the relay would send the same rows: connect to the primary, or give the relay of this server a name of its own",
			replication.ErrUnreachable, t.store.name)
	}
	if p.KeysParked && t.lacksParked(found) {
		return fmt.Errorf("%w: according to the position record from %s there are some. Topics %s and %s", ErrParkedLost,
			p.WrittenAt.UTC().Format(time.RFC3339), t.store.place, t.deadLetters)
	}
	if err := t.checkGap(p, s); err != nil {
		return err
	}
	return t.checkPublished(ctx, p, s, published)
}

// checkName returns an error if the position of the slot is recorded under another name only: without it, the relay would send again what
// the last one has delivered since Postgres was told.
func (t *Starter) checkName(found *Found, s checkpoint.Server) error {
	name := found.otherName(s)
	if name == "" || t.acceptGap {
		return nil
	}
	return fmt.Errorf("%w: the position of slot %q is recorded under the name %q, and the name of this relay is %q: set the key name to %[3]s, as for a standby; "+
		"or, to use another name from now on, which may send the last rows again: start once with outbox-cdc run --accept-gap",
		replication.ErrConfig, s.Slot, name, t.store.name)
}

// lacksParked reports whether found has no set of parked keys, and the operator has not accepted that. A later ownership of the
// process needs no such set: the Writer keeps what the store loses.
func (t *Starter) lacksParked(found *Found) bool {
	return t.parked.record == nil && found.Parked == nil && !t.acceptGap
}

// ParksAnew reports whether the relay parks keys, and found has nothing of an earlier relay. Then the dead letters may have records
// of keys whose parking the store has lost.
func (t *Starter) ParksAnew(found *Found) bool {
	return t.parked.set != nil && found.Position == nil && t.lacksParked(found)
}

// checkGap returns the *checkpoint.GapError that ChooseStart would return. Without a store, another relay may have used the slot: see
// continueRecord.
func (t *Starter) checkGap(p *checkpoint.Position, s checkpoint.Server) error {
	if t.store.place.IsZero() || p.EndLSN == 0 && p.Refill == nil || t.acceptGap {
		return nil
	}
	_, err := p.Continue(s)
	return err
}

// bound returns err, which is nil or about rows that were left out, with the time from which on rows may be missing, as far as p knows it:
// who has to select them by hand needs it.
func bound(err error, p *checkpoint.Position, s checkpoint.Server) error {
	snapshot, unknown := p.Undelivered(s)
	if err == nil || unknown != "" || snapshot.CommitTime.IsZero() {
		return err
	}
	return fmt.Errorf("%w (rows committed before %s are delivered)", err, snapshot.CommitTime.UTC().Format(time.RFC3339))
}

// checkPublished returns an error if the publication has left rows out since the position record was written, while no relay read
// the catalog, or while the last one did, and stopped: a relay that reads the WAL of that time does not get them, and does not
// notice. Every start returns it until a refill has sent them, or the operator has accepted the gap.
func (t *Starter) checkPublished(ctx context.Context, p *checkpoint.Position, s checkpoint.Server, published func(recorded string) error) error {
	if p.SystemID != s.SystemID {
		return nil
	}
	err := published(p.Publication)
	if stop := p.Stopped; err == nil && stop != nil && stop.Recover {
		err = fmt.Errorf("%w: it stopped at %s with exit code %d: %s", ErrLeftOut, stop.At.UTC().Format(time.RFC3339), stop.ExitCode, stop.Reason)
	}
	if err == nil || !t.acceptGap {
		return bound(err, p, s)
	}
	reason := err.Error()
	if past, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok { // the instruction was to do this
		reason = past.Reason()
	}
	t.log.WarnContext(ctx, "gap accepted, rows that the publication left out may not have been delivered", slog.String("reason", reason))
	return nil
}
