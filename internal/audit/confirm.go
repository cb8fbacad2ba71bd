package audit

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A recordedSnapshot is the newest snapshot of the position record: every transaction that it sees was delivered.
type recordedSnapshot struct {
	xmin, xmax uint64
	running    map[uint64]bool
}

// readRecorded reads the position record, nil if there is none of the server and the timeline that were read. It does
// not create the topic.
func (a *auditor) readRecorded(ctx context.Context) (*recordedSnapshot, error) {
	topic := a.cfg.Relay.PositionTopic
	if topic == "" {
		return nil, nil //nolint:nilnil // there is no record without a place for it
	}
	reader, err := a.cfg.Relay.Sink.OpenReader(a.log)
	if err != nil {
		return nil, err
	}
	spans, err := a.spans(ctx, reader, topic)
	if err = errors.Join(err, reader.Close()); err != nil || spans[topic] == nil {
		return nil, err
	}
	p, err := relay.Recorded(ctx, a.cfg.Relay, a.log)
	if err != nil || p == nil || len(p.Snapshots) == 0 || p.Slot != a.cfg.Slot || p.SystemID != a.read.SystemID || p.Timeline != a.read.Timeline {
		return nil, err
	}
	bounds := strings.SplitN(p.Snapshots[0].Text, ":", 3) // as checkpoint.ValidSnapshot demands
	s := &recordedSnapshot{xmin: parseXID([]byte(bounds[0])), xmax: parseXID([]byte(bounds[1])), running: make(map[uint64]bool)}
	for id := range strings.SplitSeq(bounds[2], ",") {
		s.running[parseXID([]byte(id))] = true
	}
	return s, nil
}

// sees reports whether a transaction is visible in the snapshot, so that its rows were delivered.
func (s *recordedSnapshot) sees(xid uint64) bool {
	return xid != 0 && (xid < s.xmin || xid < s.xmax && !s.running[xid])
}

// parseXID returns 0 for what is no transaction id.
func parseXID(text []byte) uint64 {
	id, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// pollInterval is how often the slot is asked what it has confirmed.
const pollInterval = 250 * time.Millisecond

// awaitConfirmation finds out which of the rows must have records by now. Every row that was read was committed
// before the WAL position of that moment: a slot that has confirmed it has delivered all of them. If nobody streams
// from the slot, it confirms no more.
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
		a.cfg.Progress("until the slot has confirmed "+a.read.WALEnd.String(), 0, 1)
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

// someDue notes which rows the position record shows as delivered, if it can. It reads the rows again, for their
// transactions.
func (a *auditor) someDue(ctx context.Context) error {
	a.confirmed = Unknown
	behind := "the slot had not confirmed " + a.read.WALEnd.String() + ", where the WAL ended when the tables were read"
	if !a.progress.Exists {
		behind = "slot " + a.cfg.Slot + " does not exist"
	}
	a.notes = append(a.notes, behind)
	snapshot, err := a.readRecorded(ctx)
	if err != nil || snapshot == nil || !a.transactions {
		return err
	}
	a.confirmed = ByRecord
	return a.readAgain(ctx, a.cfg.Selection, func(rec *sink.Record, xid uint64) {
		if !snapshot.sees(xid) {
			return
		}
		if n, ok := a.ledger.find(a.ledger.hasher.ID(headerID(rec))); ok {
			a.ledger.flags[n] |= due
		}
	})
}
