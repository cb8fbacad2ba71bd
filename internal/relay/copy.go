package relay

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
)

// The initial copy sends the rows that were in the tables when the slot was created, before the
// session handles anything of the stream. The position record says whether a copy is pending, from
// before the slot is created until all rows are acknowledged. If the process crashes in between, the
// next start finds the record and reads all rows again. The writer recognises those that are stored. Rows written
// since the slot was created are then duplicated.

// errCopyUnfinished: an earlier start has created the slot, but has not delivered the whole copy.
var errCopyUnfinished = errors.New("the initial copy of an earlier start is not finished")

// planCopy returns the copy that the session must send before the stream, or nil.
func (r *Relay) planCopy(ctx context.Context, s checkpoint.Server, slot *catalog.Slot) (*pump.Copy, error) {
	if refill := r.positions.Next().Refill; refill != nil {
		return r.planRefill(refill, s)
	}
	if !r.positions.Next().Copying {
		if r.cfg.InitialCopy && r.positions.Stored().EndLSN == 0 && r.cfg.SkipTo == 0 { // with SkipTo, it takes over a slot whose rows were sent
			r.log.WarnContext(ctx, "no initial copy because the slot already existed, rows from before it are not sent")
		}
		return nil, nil
	}
	if !r.cfg.InitialCopy {
		return nil, errCopyUnfinished
	}
	all := func(ctx context.Context) (*catalog.Copy, error) { return r.openCopy(ctx, nil) }
	return &pump.Copy{Point: slot.ConfirmedFlushLSN, Since: withMargin(r.positions.Next().CopyBegan), Open: all, MarkDone: r.positions.MarkCopied}, nil
}

// withMargin returns a time from when on rows may have been stored that were committed or sent after t. Clocks of relays differ, and
// a transaction that waits for a synchronous standby is invisible after its commit time. A zero time stays zero.
func withMargin(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-time.Minute)
}

// openCopy returns, the first time, the copy from the snapshot of the slot that this start has created, unless its connection
// was lost before this session. After that, it returns a copy of the current rows, or of the missing ones.
func (r *Relay) openCopy(ctx context.Context, missing *catalog.Missing) (*catalog.Copy, error) {
	if made := r.copy; made != nil {
		r.copy = nil
		checking, cancel := context.WithTimeout(ctx, inspectTimeout)
		defer cancel()
		if made.Check(checking) == nil {
			return made, nil
		}
		made.Close(ctx)
	}
	creating, waiting, cancel := r.whileWaiting(ctx, r.waits.announce)
	defer cancel()
	return catalog.OpenCopy(creating, r.cfg.Source, r.cfg.Tables, r.copyFilter(), missing, waiting)
}

func (r *Relay) copyFilter() catalog.CopyFilter {
	return catalog.CopyFilter{Where: r.cfg.InitialCopyWhere, ID: r.cfg.Route.Columns.ID}
}

// closeCopy closes a copy that no session has used.
func (r *Relay) closeCopy(ctx context.Context) {
	if r.copy != nil {
		r.copy.Close(ctx)
		r.copy = nil
	}
}
