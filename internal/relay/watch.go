package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/owner"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

const (
	inspectTimeout   = 10 * time.Second // for one read of the catalog
	snapshotInterval = time.Second      // between two snapshots in the WAL
	heldInterval     = time.Second / 5  // between two checks whether an error that was held back is due
)

// An observer is the connection to the source that a watcher uses, beside the stream.
type observer interface {
	Wait(ctx context.Context) error
	Inspect(ctx context.Context) (*catalog.State, error)
	EmitSnapshot(ctx context.Context, nonce string) (changed bool, err error)
	Close(ctx context.Context)
}

// A watcher reads the catalog while a session streams, because the stream does not report when a
// publication, a table or the slot stops delivering rows. The watcher ends the session if rows are left
// out. It also ends the session if the server shuts down or has ended the stream, which the stream itself
// cannot detect while it does not read. A watcher that cannot read the catalog does not end the session.
//
// It also writes snapshots to the WAL, as logical messages: one at the start, and others while rows flow.
// When such a message is confirmed, every transaction that is visible in its snapshot is delivered.
type watcher struct {
	observer      observer
	interval      time.Duration
	sameServer    func(*catalog.State) bool // reports whether a catalog is that of the server that streams
	pid           int32                     // of the WAL sender that must hold the slot
	heard         func(at time.Time)        // called with the time of the query if pid holds the slot
	checkState    func(context.Context, *catalog.State) error
	isHeld, isDue func() bool   // checkState has held an error back, and returns it now
	rowsSent      func() uint64 // number of rows sent to the sink
	nonce         string        // [Relay.nonce]
	emitSnapshots bool
	log           *slog.Logger

	held          bool   // the catalog has shown that pid holds the slot
	inspectFailed bool   // the last read of the catalog failed
	emitFailed    bool   // a snapshot failed since the last read of the catalog
	loggedFailure string // last logged error of emitSnapshot
	emitted       bool   // a snapshot was written
	emittedRows   uint64 // rowsSent when the last snapshot was written
}

// newWatcher returns the watcher of a session that started with state.
func (r *Relay) newWatcher(s *owner.Session, stream *replication.Stream, state *catalog.State) *watcher {
	interval := r.cfg.WatchInterval
	if t := stream.SenderTimeout(); t > 0 {
		interval = min(interval, t/5) // the fence closes after half of it
	}
	return &watcher{
		observer: s.Observer(), interval: interval, pid: int32(stream.PID()), heard: stream.Heard,
		sameServer: recogniseServer(stream.System().ID, int32(stream.PID()), state.InRecovery),
		checkState: func(ctx context.Context, now *catalog.State) error {
			columns := r.recheckTables(ctx, now)
			return errors.Join(r.compareCatalog(ctx, now), columns, r.checkStore(ctx))
		},
		isDue: func() bool { return r.tables.isDue(r.confirmed(nil)) }, isHeld: func() bool { return r.tables.held != nil },
		rowsSent: func() uint64 { return r.progress.Counts().Rows }, nonce: r.nonce, emitSnapshots: r.cfg.Source.MessagePrefix != "",
		log: r.log,
	}
}

// recogniseServer returns a function that reports whether a catalog is that of the server that streams. If
// the process pid holds the slot, it is; the server may be a standby that was promoted during the stream.
// If nobody holds the slot, the function can only tell a primary from its standbys. inRecovery is the state
// before the stream, perhaps of another server.
func recogniseServer(systemID string, pid int32, inRecovery bool) func(*catalog.State) bool {
	return func(now *catalog.State) bool {
		if now.SystemID == systemID && now.Slot != nil && now.Slot.ActivePID == pid {
			inRecovery = now.InRecovery
		}
		return now.SystemID == systemID && now.InRecovery == inRecovery
	}
}

// run watches until ctx ends. It returns nil then, or an error that ends the session.
func (w *watcher) run(ctx context.Context) error {
	defer w.observer.Close(ctx)
	read, emit := time.Now().Add(w.interval), time.Now().Add(snapshotInterval)
	for {
		next := read
		if w.emitSnapshots && emit.Before(read) {
			next = emit
		}
		if soon := time.Now().Add(heldInterval); w.isHeld() && soon.Before(next) {
			next = soon
		}
		waiting, cancel := context.WithDeadline(ctx, next)
		err := w.observer.Wait(waiting)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && (w.isDue() || !time.Now().Before(read)) {
			read = time.Now().Add(w.interval)
			err = w.watchOnce(ctx)
		}
		if err != nil {
			return err
		}
		if w.emitSnapshots && !time.Now().Before(emit) {
			if w.emitSnapshot(ctx) {
				read = time.Now()
			}
			emit = time.Now().Add(snapshotInterval)
		}
	}
}

// watchOnce reads the catalog and checks it. An error ends the session.
func (w *watcher) watchOnce(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	asked := time.Now()
	state, err := w.observer.Inspect(limited)
	if err == nil && !w.sameServer(state) {
		w.observer.Close(ctx)
		err = fault.ErrOtherServer
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil && !w.inspectFailed:
		w.inspectFailed = true
		w.log.WarnContext(ctx, "cannot read the catalog, retrying", slog.Any("err", err))
	case err == nil && w.inspectFailed:
		w.inspectFailed = false
		w.log.InfoContext(ctx, "catalog readable again")
	}
	w.emitFailed = false
	if err != nil {
		return nil // the stream decides whether the source is lost
	}
	if slot := state.Slot; slot != nil {
		switch {
		case slot.ActivePID == w.pid:
			w.held = true
			w.heard(asked)
		case slot.ActivePID != 0:
			return fmt.Errorf("%w: WAL sender %d holds it, ours is %d", fault.ErrSlotTaken, slot.ActivePID, w.pid)
		case w.held:
			return fmt.Errorf("%w: our WAL sender %d, which held the slot, has ended", replication.ErrUnreachable, w.pid)
		}
	}
	return w.checkState(ctx, state)
}

// emitSnapshot writes a snapshot if rows have been sent since the last one, or if there is none yet: a
// slot may be lost before its first row is read. After a failure it waits until the catalog was read
// again. It does not log a lost connection: either the next read of the catalog fails as well and logs it,
// or the next snapshot succeeds. It returns true if the publication or the tables have changed since then: the
// catalog must be read first.
func (w *watcher) emitSnapshot(ctx context.Context) (changed bool) {
	rows := w.rowsSent()
	if w.emitted && rows == w.emittedRows || w.inspectFailed || w.emitFailed {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	changed, err := w.observer.EmitSnapshot(limited, w.nonce)
	if changed {
		return true
	}
	if err == nil {
		w.emitted, w.emittedRows, w.loggedFailure = true, rows, ""
		return false
	}
	w.emitFailed = true
	lost := errors.Is(err, replication.ErrUnreachable) && !replication.IsReadOnly(err)
	if text := err.Error(); ctx.Err() == nil && !lost && text != w.loggedFailure {
		w.loggedFailure = text
		w.log.WarnContext(ctx, "could not write a snapshot to the WAL", slog.Any("err", err),
			slog.String("hint", "rows are relayed all the same; if the slot is lost now, the relay cannot tell which rows since the last snapshot were delivered"))
	}
	return false
}

// compareCatalog compares state, whose tables were checked, with what this process has read before, and logs changes. It returns an
// error if a change leaves out rows.
func (r *Relay) compareCatalog(ctx context.Context, state *catalog.State) error {
	warnings, err := r.history.Look(state)
	if err == nil {
		r.positions.Recorder.SetPublication(state.Published())
	}
	r.noteSlot(state)
	if state.Slot != nil {
		r.owner.NoteConfirmed(state.Slot.ConfirmedFlushLSN)
	}
	for _, change := range warnings {
		level := slog.LevelWarn
		if change.Over {
			level = slog.LevelInfo
		}
		r.log.Log(ctx, level, "catalog change", slog.String("object", change.Object), slog.String("change", change.Text))
	}
	return r.tables.orUnlisted(err)
}

// checkStore returns position.ErrNoStore if the writer has been stalled for owner.ReleaseAfter and the store does not
// respond either, because then the relay can reach no broker.
func (r *Relay) checkStore(ctx context.Context) error {
	if r.cfg.Positions.IsZero() {
		return nil
	}
	if st, _ := r.sinkStat(); st.StalledSince.IsZero() || time.Since(st.StalledSince) < owner.ReleaseAfter {
		return nil
	}
	err := position.Try(ctx, position.Timeout, func(ctx context.Context) error {
		_, err := r.positions.Recorder.Read(ctx)
		return err
	})
	if errors.Is(err, position.ErrNoStore) {
		return err
	}
	return nil
}

// confirmed returns a position up to which everything is delivered. state may be nil.
func (r *Relay) confirmed(state *catalog.State) pglogrepl.LSN {
	var confirmed pglogrepl.LSN
	if state != nil && state.Slot != nil {
		confirmed = state.Slot.ConfirmedFlushLSN
	}
	if t := r.owner.Tracker(); t != nil {
		confirmed = max(confirmed, t.Confirmed())
	}
	return confirmed
}

// recheckTables returns an error if rows of a published table can no longer become records, and all older rows are
// delivered. It only logs an error of the catalog.
func (r *Relay) recheckTables(ctx context.Context, state *catalog.State) error {
	err := r.tables.check(ctx, state, r.cfg.Rows().Describe(ctx), r.confirmed(state))
	if err == nil {
		r.neighbours.Update(ctx, state, r.tables.hasColumns)
	}
	if _, lacks := errors.AsType[*encode.ColumnError](err); err == nil || lacks {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the session is over
	}
	r.log.WarnContext(ctx, "cannot check the columns of the tables, retrying", slog.Any("err", err))
	return nil
}
