package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
)

// A NextStart is what a start of the relay would find now.
type NextStart struct {
	Record  *checkpoint.Position // nil: there is none: no relay of this name has run yet, or the record was lost
	First   bool                 // no slot belongs to Record, if there is one: the first start has announced an initial copy, and not created the slot
	Parked  int                  // number of keys that a relay with this name has parked
	Catalog error                // what prevents it in Postgres: see [catalog.State.Verify]
	Broken  error                // why it would not continue at the record
	Doubt   error                // why rows may be missing although it continues there, with the instruction; nil: none is known
	Recover string               // how to continue if rows are missing, without a full stop
	Refused error                // why [catalog.InstructRecover] would refuse, which is part of Catalog or Broken; nil: it would not, or that is not known
}

// Unfinished names what an earlier start has not finished, whose rows come from the tables and not from the WAL; empty: nothing.
func (n *NextStart) Unfinished() string {
	switch p := n.Record; {
	case p == nil:
		return ""
	case p.Refill != nil:
		return "refill"
	case p.Copying:
		return "initial copy"
	}
	return ""
}

// An UnreadError says why the position store cannot be read, so that nobody knows whether it has a record.
type UnreadError struct{ err error }

// Error returns the reason.
func (e *UnreadError) Error() string { return "the position record cannot be read: " + e.err.Error() }

// Unwrap returns the error of the store.
func (e *UnreadError) Unwrap() error { return e.err }

// FindNextStart returns what a start of the relay would find in the position store and in Postgres. It changes nothing. The error
// wraps [errors.ErrUnsupported] if there is no position store, or it is a file without a record: the relay's may be on another machine. It
// is an [*UnreadError] if the store cannot be read, or what it refers to, before ctx ends.
func FindNextStart(ctx context.Context, cfg Config, log *slog.Logger) (*NextStart, error) {
	if cfg.Positions.IsZero() {
		return nil, errors.ErrUnsupported
	}
	r, err := New(cfg, log)
	if err != nil {
		return nil, err
	}
	found, err := r.store.ReadFrom(ctx, r.cfg.Sink)
	if errors.Is(err, position.ErrRecord) {
		return &NextStart{Record: &checkpoint.Position{}, Broken: err}, nil
	}
	if err != nil {
		return nil, &UnreadError{err}
	}
	if cfg.Positions.File != "" && found.Position == nil && len(found.Others) == 0 {
		return nil, errors.ErrUnsupported
	}
	server, state, reached, err := refill.Inspect(ctx, r.cfg.Source, r.cfg.Tables, log)
	if err != nil {
		return nil, err
	}
	state.Messages = len(cfg.Messages) > 0
	next := &NextStart{Record: found.Position, Catalog: state.Verify(), Recover: state.InstructRecover()}
	if found.Parked.HasKeys() {
		next.Parked = len(found.Parked.Parkings)
	}
	next.First = state.Slot == nil && (next.Record == nil || !next.Record.HadSlot())
	unfit := r.tables.findUnfit(state, r.cfg.Rows().Describe(ctx))
	lost := next.Catalog // why rows are missing, if they are
	switch {
	case next.First && r.createsSource(state, next.Catalog):
		next.Catalog = state.VerifyOutboxes() // what it creates needs the tables
		if next.Catalog == nil && state.Publication == nil {
			next.Catalog, err = mayPublish(ctx, reached.Conn, cfg.Tables)
		}
	case next.Record != nil && r.planner.Refills(next.Catalog):
		next.Catalog = nil
	}
	if state.Slot != nil {
		if next.Broken = r.findBreak(ctx, found, server, state); ctx.Err() != nil {
			return nil, &UnreadError{context.Cause(ctx)}
		}
		lost = cmp.Or(lost, next.Broken)
		if p := next.Record; p != nil && next.Broken == nil && p.SystemID == server.SystemID {
			next.Doubt = cmp.Or(state.CheckUnaltered(p.Publication), state.CheckKnown(p.Publication))
		}
		if next.Catalog == nil && next.Broken == nil {
			next.Catalog = unfit
		}
		if r.planner.Refills(next.Broken) {
			next.Broken = nil
		}
	} else if !next.First {
		if elsewhere := next.Record.Elsewhere(server); elsewhere != nil {
			next.Catalog, next.Broken, lost = nil, elsewhere, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if next.Record != nil && !next.First && next.Recover == catalog.InstructRecover {
		cfg := r.cfg.refill()
		cfg.Source = reached
		next.noteRefusal(lost, refill.Refused(ctx, cfg, next.Record, lost, server, state))
	}
	return next, nil
}

// noteRefusal changes n if the gap because of lost cannot be refilled: a start that would refill fails, and so does [catalog.InstructRecover].
func (n *NextStart) noteRefusal(lost, refused error) {
	if refused == nil {
		return
	}
	err := refill.Unrefilled(lost, refused)
	_, gap := errors.AsType[*checkpoint.GapError](lost)
	_, leftOut := errors.AsType[*catalog.LeftOutError](lost)
	if gap || leftOut {
		n.Broken = err
	} else {
		n.Catalog = err
	}
	n.Refused, n.Recover = refused, fault.Next(err)
}

// mayPublish returns why the role may not create the publication, with the class of the error of a start.
func mayPublish(ctx context.Context, conn *pgconn.Config, tables []string) (denied, err error) {
	reader := catalog.NewReader(conn)
	defer reader.Close(ctx)
	err = reader.MayPublish(ctx, tables)
	if _, ok := errors.AsType[*catalog.RightError](err); ok {
		return &refill.CreationError{Err: err}, nil
	}
	return nil, err
}

// findBreak returns the error with which a session on s would end because of what is stored.
func (r *Relay) findBreak(ctx context.Context, found *position.Found, s checkpoint.Server, state *catalog.State) error {
	err := r.owner.CheckStored(ctx, found, s, state.CheckPublished)
	if err == nil && found.Position != nil {
		return r.planner.CheckFinished(found.Position)
	}
	return r.tables.orUnlisted(explainGap(state, err))
}
