package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

const (
	inspectTimeout   = 10 * time.Second // of a single read of the catalog
	snapshotInterval = time.Second      // between two snapshots in the WAL
)

// An observer is what a watcher needs of the source beside the stream.
type observer interface {
	Wait(ctx context.Context) error
	Inspect(ctx context.Context) (*catalog.State, error)
	EmitSnapshot(ctx context.Context, nonce string) error
	Close(ctx context.Context)
}

// A watcher reads the catalog beside the stream, since a publication, a table or a slot can cease to
// deliver without a message in the stream. It ends the session if rows are left out, or if the server
// stops or has ended the stream, which must not wait until the stream is read. Otherwise the stream decides whether the source is
// lost: a watcher that cannot read the catalog ends no session.
//
// While rows flow it also writes snapshots to the WAL, as logical messages. When the stream gets
// there, every transaction that the snapshot sees is delivered.
type watcher struct {
	observer      observer
	interval      time.Duration
	sameServer    func(*catalog.State) bool // the catalog is of the server that streams
	pid           int32                     // of the server process that must hold the slot
	heard         func(at time.Time)        // told when the catalog was asked, if it does
	checkState    func(context.Context, *catalog.State) error
	rowsSent      func() uint64 // to the sink, so far
	nonce         string        // of [Relay]
	emitSnapshots bool
	log           *slog.Logger

	held          bool   // pid has been seen to hold the slot: it is the server that is asked
	inspectFailed bool   // the last time
	emitFailed    bool   // since the catalog was read
	loggedFailure string // of emitSnapshot
	emittedRows   uint64 // rowsSent when the last snapshot was written
}

// newWatcher returns the watcher of a session that started with state.
func (r *Relay) newWatcher(stream *replication.Stream, state *catalog.State) *watcher {
	rows := func() uint64 { return r.flow.load().rows }
	interval := r.cfg.WatchInterval
	if t := stream.SenderTimeout(); t > 0 {
		interval = min(interval, t/5) // the fence waits half of it at most
	}
	return &watcher{
		observer: catalog.Observe(stream.Config()), interval: interval, pid: int32(stream.PID()), heard: stream.Heard,
		sameServer: recogniseServer(stream.System().ID, int32(stream.PID()), state.InRecovery),
		checkState: func(ctx context.Context, now *catalog.State) error {
			return errors.Join(r.compareCatalog(ctx, now), r.recheckTables(ctx, now), r.checkStore(ctx))
		},
		rowsSent: rows, emittedRows: rows(), nonce: r.nonce, emitSnapshots: r.cfg.Source.MessagePrefix != "",
		log: r.log,
	}
}

// recogniseServer returns a function that reports whether a catalog is of the server that streams. That
// one has the slot in the hands of process pid, and may be a standby that is promoted meanwhile. If
// nobody has the slot, only a primary and its standbys are told apart: inRecovery is what was read before
// the stream, of another server maybe.
func recogniseServer(systemID string, pid int32, inRecovery bool) func(*catalog.State) bool {
	return func(now *catalog.State) bool {
		if now.SystemID == systemID && now.Slot != nil && now.Slot.ActivePID == pid {
			inRecovery = now.InRecovery
		}
		return now.SystemID == systemID && now.InRecovery == inRecovery
	}
}

// run watches until ctx ends (nil), the server stops, or the catalog says that rows are left out.
func (w *watcher) run(ctx context.Context) error {
	defer w.observer.Close(ctx)
	pause := w.interval
	if w.emitSnapshots {
		pause = min(pause, snapshotInterval)
	}
	for look := time.Now().Add(w.interval); ; {
		waiting, cancel := context.WithTimeout(ctx, min(pause, time.Until(look)))
		err := w.observer.Wait(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case time.Now().Before(look):
			w.emitSnapshot(ctx)
			continue
		}
		look = time.Now().Add(w.interval)
		if err := w.watchOnce(ctx); err != nil {
			return err
		}
	}
}

// errOtherServer: a name or an address in front of several servers led elsewhere.
var errOtherServer = errors.New("another server answered than the one that is streamed from")

// watchOnce reads the catalog and checks it. An error ends the session.
func (w *watcher) watchOnce(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	asked := time.Now()
	state, err := w.observer.Inspect(limited)
	if err == nil && !w.sameServer(state) {
		w.observer.Close(ctx)
		err = errOtherServer
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil && !w.inspectFailed:
		w.inspectFailed = true
		w.log.WarnContext(ctx, "catalog not watched: what ends delivery is noticed later", slog.Any("err", err))
	case err == nil && w.inspectFailed:
		w.inspectFailed = false
		w.log.InfoContext(ctx, "catalog watched again")
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
			return fmt.Errorf("%w: server process %d holds it, ours is %d", errSlotTaken, slot.ActivePID, w.pid)
		case w.held:
			return fmt.Errorf("%w: server process %d has ended, which held the slot", replication.ErrUnreachable, w.pid)
		}
	}
	return w.checkState(ctx, state)
}

// emitSnapshot writes a snapshot if rows have been sent since the last one. After a failure it waits
// until the catalog has been read again. A lost connection is not logged here: either the next look at
// the catalog fails as well, or the snapshot is written after it.
func (w *watcher) emitSnapshot(ctx context.Context) {
	rows := w.rowsSent()
	if rows == w.emittedRows || w.inspectFailed || w.emitFailed {
		return
	}
	limited, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	err := w.observer.EmitSnapshot(limited, w.nonce)
	if err == nil {
		w.emittedRows, w.loggedFailure = rows, ""
		return
	}
	w.emitFailed = true
	if text := err.Error(); ctx.Err() == nil && !errors.Is(err, replication.ErrUnreachable) && text != w.loggedFailure {
		w.loggedFailure = text
		w.log.WarnContext(ctx, "snapshot not written: if the slot is lost, what it had not delivered is not known", slog.Any("err", err))
	}
}

// compareCatalog compares state with what this process has read before. It logs changes; one that
// leaves out rows is an error.
func (r *Relay) compareCatalog(ctx context.Context, state *catalog.State) error {
	warnings, err := r.history.Look(state)
	r.slot.Store(newSlotStat(state, r.history.LimitAt()))
	if state.Slot != nil {
		r.flow.noteTold(state.Slot.ConfirmedFlushLSN)
	}
	for _, change := range warnings {
		level := slog.LevelWarn
		if change.Over {
			level = slog.LevelInfo
		}
		r.log.Log(ctx, level, "catalog watch", slog.String("object", change.Object), slog.String("change", change.Text))
	}
	return err
}

// recheckTables returns an error if a published table cannot be relayed any more. If the catalog does
// not answer, it leaves that to the stream.
func (r *Relay) recheckTables(ctx context.Context, state *catalog.State) error {
	err := r.tables.checkTables(state, r.newDescribe(ctx))
	if err == nil || as[*encode.ColumnError](err) {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the session is over
	}
	r.log.WarnContext(ctx, "tables not checked: what cannot be relayed is noticed later", slog.Any("err", err))
	return nil
}
