package audit

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deliveredSnapshot returns the newest snapshot of the position record: every transaction that it sees was delivered.
// It returns "" if there is no record of the server and the timeline that were read.
func (a *auditor) deliveredSnapshot(ctx context.Context) (string, error) {
	p, err := relay.Recorded(ctx, a.cfg.Relay, a.log)
	if err != nil || p == nil || len(p.Snapshots) == 0 || p.Slot != a.cfg.Slot || p.SystemID != a.read.SystemID || p.Timeline != a.read.Timeline {
		return "", err
	}
	return p.Snapshots[0].Text, nil
}

// pollInterval is the time between two reads of the confirmed position.
const pollInterval = 250 * time.Millisecond

// awaitConfirmation finds out which of the rows must have records by now. Every row that was read was committed
// before the WAL position of that moment: a slot that has confirmed it has delivered all of them. If no relay streams
// from the slot, awaitConfirmation does not wait.
func (a *auditor) awaitConfirmation(ctx context.Context) error {
	deadline := time.NewTimer(a.cfg.Wait)
	defer deadline.Stop()
	for {
		now, err := catalog.ReadSlotProgress(ctx, a.cfg.Relay.Source.Conn, a.cfg.Slot)
		if err != nil {
			return err
		}
		a.progress = now
		if now.SystemID != a.read.SystemID || now.Timeline != a.read.Timeline {
			return errors.New("the DSN leads to another server or timeline than before: Postgres has failed over; run the audit again")
		}
		if now.Exists && now.Confirmed >= a.read.WALEnd {
			a.allDue(BySlot)
			return nil
		}
		if a.cfg.AssumeConfirmed {
			a.allDue(ByRequest)
			return nil
		}
		if !now.Active {
			return a.someDue(ctx)
		}
		a.cfg.Progress("waiting for the slot to confirm "+a.read.WALEnd.String(), 0, 1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return a.someDue(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// allDue notes that every row must have a record.
func (a *auditor) allDue(by Confirmed) {
	a.confirmed = by
	for i := range a.ledger.flags {
		a.ledger.flags[i] |= due
	}
}

// someDue notes which rows the position record shows as delivered, if it can. It reads these rows again.
func (a *auditor) someDue(ctx context.Context) error {
	a.confirmed = Unknown
	behind := "the slot had not confirmed " + a.read.WALEnd.String() + ", where the WAL ended when the tables were read"
	if !a.progress.Exists {
		behind = "slot " + a.cfg.Slot + " does not exist"
	}
	a.notes = append(a.notes, behind)
	sel := a.cfg.Selection
	var err error
	if sel.VisibleIn, err = a.deliveredSnapshot(ctx); err != nil || sel.VisibleIn == "" || !a.transactions {
		return err
	}
	a.confirmed = ByRecord
	return a.readAgain(ctx, sel, func(rec *sink.Record, _ error) {
		if n, ok := a.ledger.find(a.ledger.hasher.ID(headerID(rec))); ok {
			a.ledger.flags[n] |= due
		}
	})
}
