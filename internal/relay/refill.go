package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A refill resends the rows that a lost slot had not delivered. It is a copy with a selection: the new
// slot is created with an exported snapshot; the relay sends the rows that this snapshot sees and that the
// last confirmed snapshot of the position record does not see, in the order of their insertion, as a
// new owner, before it handles anything of the stream. Until all rows are acknowledged, the position record
// selects them, and counts those that are acknowledged. So a refill continues where it was interrupted.
//
// The relay writes that record after it has created the slot. If the process ends in between, the new slot is
// ahead of the old record, which is a gap: the next start refills again. If the slot of a refill is lost, another refill sends
// the same rows first, so that it can continue after those that were acknowledged.

// refillHeader is the header of a refilled record, with the text true, encoded as headers are. It
// comes after all others.
const refillHeader = "refilled"

// errRefillUnfinished: a refill was interrupted, and this start must not send anything else before it.
var errRefillUnfinished = errors.New("the refill of a lost slot is not finished")

// ErrNothingLost says that the slot continues at the position record.
var ErrNothingLost = errors.New("nothing to recover: the slot continues at the position record")

// A Loss describes the rows that a lost slot had not delivered.
type Loss struct {
	Record   checkpoint.Position // of the lost slot
	Cause    error               // why the slot does not continue there
	Snapshot checkpoint.Snapshot // the delivered transactions are visible in it
	WALEnd   pglogrepl.LSN       // now
	Tables   []MissingRows
	Resumes  bool // an interrupted refill continues

	begins  checkpoint.Position // the record from which the refill starts
	cfg     Config              // of the server that was asked
	server  checkpoint.Server
	missing catalog.Missing
	state   *catalog.State
}

// MissingRows are the rows of a table that are to be refilled, those that have been resent by an
// interrupted refill included.
type MissingRows struct {
	Table string
	Rows  int64
}

// Rows returns the number of all missing rows.
func (l *Loss) Rows() (n int64) {
	for _, t := range l.Tables {
		n += t.Rows
	}
	return n
}

// FindLoss returns what a refill would resend now. It changes nothing. The error wraps ErrNothingLost if
// the slot continues at the position record, and [catalog.ErrRefill] if the gap cannot be refilled.
func FindLoss(ctx context.Context, cfg Config, log *slog.Logger) (*Loss, error) {
	cfg = cfg.withDefaults()
	record, err := Recorded(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return findLoss(ctx, cfg, record, log)
}

// findLoss reads the tables, which has no time limit.
func findLoss(ctx context.Context, cfg Config, record *checkpoint.Position, log *slog.Logger) (*Loss, error) {
	if record == nil {
		return nil, fmt.Errorf("%w: relay %q has no position record in %q; to send rows of a time or with given ids: outbox-cdc replay",
			catalog.ErrRefill, cfg.Name, cfg.Positions)
	}
	l := &Loss{Record: *record, begins: *record, cfg: cfg}
	if record.Refill != nil {
		l.Record = record.Refill.Lost
	}
	inspecting, cancel := context.WithTimeout(ctx, cfg.StartupTimeout)
	defer cancel()
	if err := l.inspect(inspecting, log); err != nil {
		return nil, err
	}
	if err := l.judge(record); err != nil {
		return nil, err
	}
	if err := l.selectRows(); err != nil {
		return nil, err
	}
	return l, l.count(ctx)
}

// inspect reads the state of the server, the publication and the slot.
func (l *Loss) inspect(ctx context.Context, log *slog.Logger) error {
	stream, err := replication.Open(ctx, l.cfg.Source, log)
	if err != nil {
		return err
	}
	l.cfg.Source = stream.Config() // all other connections lead to the same server
	system, history := stream.System(), checkpoint.History(stream.History())
	l.WALEnd = stream.WALEnd()
	if err := stream.Close(ctx, 0); err != nil {
		return err
	}
	if l.state, err = catalog.Inspect(ctx, l.cfg.Source.Conn, l.cfg.Source.Publication, l.cfg.Source.Slot, catalog.NewTables(l.cfg.Tables)); err != nil {
		return err
	}
	l.server = checkpoint.Server{SystemID: system.ID, Timeline: system.Timeline, History: history, Slot: l.cfg.Source.Slot, WALEnd: l.WALEnd}
	if l.state.Slot != nil {
		l.server.Confirmed = l.state.Slot.ConfirmedFlushLSN
	}
	return nil
}

// judge sets the reason why the slot does not continue at the record.
func (l *Loss) judge(record *checkpoint.Position) error {
	l.state.Messages = len(l.cfg.Messages) > 0
	l.Cause = l.state.Verify()
	switch {
	case errors.Is(l.Cause, replication.ErrSlotMissing), errors.Is(l.Cause, replication.ErrSlotLost):
		return nil
	case l.Cause != nil:
		return l.Cause
	case l.state.Slot.Active:
		return fmt.Errorf("%w: server process %d streams from slot %q; stop that relay first", replication.ErrSlotInUse, l.state.Slot.ActivePID, l.cfg.Source.Slot)
	case record.Refill != nil:
		l.Cause = errRefillUnfinished
		_, changed := record.Continue(l.server)
		l.Resumes = changed == nil
		return nil
	case record.Copying:
		return errCopyUnfinished
	}
	_, l.Cause = record.Continue(l.server)
	if l.Cause == nil {
		return ErrNothingLost
	}
	return nil
}

// selectRows finds the snapshot that shows which rows were delivered.
func (l *Loss) selectRows() error {
	if len(l.cfg.Messages) > 0 {
		return fmt.Errorf("%w: rows that are logical messages (outbox.messages) are in the WAL only", catalog.ErrRefill)
	}
	lost, assume := l.Record, l.cfg.Assume
	if lost.SystemID == l.server.SystemID {
		assume.Upgraded, assume.Restored = false, false
	} else if assume.Upgraded || assume.Restored {
		l.begins, lost = l.begins.Adopt(l.server), lost.Adopt(l.server)
	}
	snapshot, reason := lost.Undelivered(l.server)
	switch {
	case lost.SystemID != l.server.SystemID:
		return fmt.Errorf("%w: %s; if it was upgraded from that system with pg_upgrade: --assume-upgraded; if the tables were restored from a dump of that system, and nothing has written to them since: --assume-restored",
			catalog.ErrRefill, reason)
	case reason != "":
		return fmt.Errorf("%w: %s; to send rows of a time or with given ids: outbox-cdc replay", catalog.ErrRefill, reason)
	}
	l.Snapshot = snapshot
	l.missing = catalog.Missing{Delivered: snapshot.Text, Assume: assume}
	if l.Resumes {
		l.missing.Until, l.missing.Earlier = l.begins.Refill.Until, l.begins.Refill.Earlier
	} else {
		l.missing.Earlier = l.begins.Interrupted(l.server)
	}
	return nil
}

// count counts the missing rows, after a check that the tables still have all of them.
func (l *Loss) count(ctx context.Context) error {
	c, err := catalog.OpenMissing(ctx, l.cfg.Source, l.cfg.Tables, l.missing)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for _, t := range c.Tables {
		if err := rows.CheckTable(ctx, l.cfg.Rows(), t); err != nil {
			return err
		}
		n, err := c.Count(ctx, t)
		if err != nil {
			return err
		}
		l.Tables = append(l.Tables, MissingRows{t.Schema + "." + t.Name, n})
	}
	return nil
}

// Preview calls fn with the record of each missing row, or with the reason why the row cannot become one.
// It sends none. The record is valid until fn returns.
func (l *Loss) Preview(ctx context.Context, fn func(rec *sink.Record, rejected error)) error {
	cfg := l.cfg
	cfg.Route = refillRoute(cfg.Route)
	router, err := cfg.Rows().NewRouter(ctx)
	if err != nil {
		return err
	}
	c, err := catalog.OpenMissing(ctx, l.cfg.Source, l.cfg.Tables, l.missing)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	now := time.Now()
	for i := range c.Tables {
		ofTable, err := rows.NewTableRouter(router, c.Tables[i])
		if err != nil {
			return err
		}
		err = c.Rows(ctx, &c.Tables[i], func(values [][]byte) error {
			fn(ofTable.Route(encode.Tx{CommitTime: now, Timestamp: now}, 0, values))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// refillRoute returns cfg for refilled rows.
func refillRoute(cfg encode.Config) encode.Config {
	cfg.Static = append(slices.Clone(cfg.Static), encode.StaticHeader{Name: refillHeader, Value: "true"})
	return cfg
}

// Recover refills the gap after a lost slot. It creates a new slot, or continues an interrupted
// refill, and returns nil when every missing row is acknowledged and the position record shows it. The next
// Run continues there. Call it instead of Run; it returns the same errors. If ctx ends before, it returns the
// cause.
func (r *Relay) Recover(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	r.recovering = true
	go func() { // ends with running
		select {
		case <-r.positions.Refilled():
			stop()
		case <-running.Done():
		}
	}()
	err := r.Run(running)
	if r.positions.Stored().Refill == nil && running.Err() != nil && ctx.Err() == nil {
		return nil // a stop that was not clean only resends rows of the stream
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// refills reports whether the relay refills after err.
func (r *Relay) refills(err error) bool {
	return (r.recovering || r.cfg.RefillOnLoss) &&
		(errors.Is(err, replication.ErrSlotMissing) || errors.Is(err, replication.ErrSlotLost) || as[*checkpoint.GapError](err))
}

// refillLost prepares a refill after a session that ended with cause. The next session sends the rows. If the gap
// cannot be refilled, the error also wraps cause.
func (r *Relay) refillLost(ctx context.Context, cause error) error {
	if t := r.tenure; t != nil { // acknowledged rows that are recorded are not resent
		r.tenure = nil
		if err := t.stopIdle(ctx); err != nil {
			r.log.WarnContext(ctx, "the refill resends more rows than usual", slog.Any("err", err))
		}
	}
	return r.refillSource(ctx, cause)
}

// refillSource prepares a refill of what the slot of the position record has lost. cause may be nil. If another process prepares
// one, it waits, and the error of a long wait is an [*advisory.HeldError]. It waits for transactions in progress without a limit.
// Each other step but the reading of the tables has a time limit of its own.
func (r *Relay) refillSource(ctx context.Context, cause error) error {
	lock, err := r.lockSlot(ctx, r.setupConfig())
	if err != nil {
		return err
	}
	defer lock.Close(ctx)
	record, err := r.readRecord(ctx)
	switch {
	case err != nil:
		return err
	case record == nil && !r.recovering:
		return cause
	}
	err = r.startRefill(ctx, lock, record)
	switch {
	case errors.Is(err, catalog.ErrRefill) && cause != nil:
		err = fmt.Errorf("%w; %w", cause, err)
	case errors.Is(err, ErrNothingLost) && !r.recovering: // another process has recovered it meanwhile
		err = nil
	}
	return err
}

func (r *Relay) lockSlot(ctx context.Context, cfg catalog.SetupConfig) (*catalog.SlotLock, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	return catalog.LockSlot(ctx, cfg)
}

// startRefill makes the slot and the position record ready for a refill of what the slot of record has
// lost.
func (r *Relay) startRefill(ctx context.Context, lock *catalog.SlotLock, record *checkpoint.Position) error {
	cfg := r.cfg
	cfg.Source.Conn = lock.Conn()
	var l *Loss
	check := func(ctx context.Context) error { // without it, a connection that is lost in silence would hold up the refill
		ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
		defer cancel()
		return lock.Check(ctx)
	}
	err := checkMeanwhile(ctx, inspectTimeout, check, func(ctx context.Context) (err error) {
		l, err = findLoss(ctx, cfg, record, r.log)
		return err
	})
	if err != nil {
		return err
	}
	r.log.WarnContext(ctx, "slot lost: refilling what it had not delivered", slog.String("recorded", l.Record.EndLSN.String()),
		slog.Time("recorded_at", l.Record.WrittenAt), slog.Int64("rows", l.Rows()), slog.Bool("continued", l.Resumes), slog.Any("reason", l.Cause))
	r.missing = uint64(l.Rows())
	if l.Resumes {
		return nil
	}
	if err := tryStore(ctx, storeTimeout, func(ctx context.Context) error { return r.positions.OwnRecord(ctx, record) }); err != nil {
		return err
	}
	r.warnLostTail(ctx, &l.Record, l.server)
	creating, waiting, cancel := r.whileWaiting(ctx, r.announceWait)
	defer cancel()
	c, err := lock.RecreateSlot(creating, l.cfg.Source, l.state.Slot, l.missing, waiting)
	if err != nil {
		return err
	}
	r.closeCopy(ctx)
	r.copy = c
	r.log.InfoContext(ctx, "set up", slog.String("object", fmt.Sprintf("slot %q", r.cfg.Source.Slot)), slog.String("action", "created again"),
		slog.String("from", c.Point.String()))
	return tryStore(ctx, storeTimeout, func(ctx context.Context) error {
		return r.positions.BeginRefill(ctx, l.begins, l.server, c.Point, c.Snapshot)
	})
}

// whileWaiting returns a context for the creation of a slot. It ends after StartupTimeout unless waiting is called before, which
// passes on to report what the creation waits for.
func (r *Relay) whileWaiting(ctx context.Context, report func(context.Context, error)) (creating context.Context, waiting catalog.Waiting, cancel context.CancelFunc) {
	creating, end := context.WithCancelCause(ctx)
	limit := time.AfterFunc(r.cfg.StartupTimeout, func() { end(context.DeadlineExceeded) })
	waiting = func(err error) {
		limit.Reset(r.cfg.StartupTimeout)
		report(ctx, err)
	}
	return creating, waiting, func() {
		limit.Stop()
		end(nil)
	}
}

// readRecord returns the position record, or nil if there is none.
func (r *Relay) readRecord(ctx context.Context) (record *checkpoint.Position, err error) {
	err = tryStore(ctx, storeTimeout, func(ctx context.Context) error {
		found, err := r.positions.Read(ctx)
		if err == nil {
			record = found.Position
		}
		return err
	})
	return record, err
}

// planRefill returns the copy that resends what is left of a refill.
func (r *Relay) planRefill(refill *checkpoint.Refill, s checkpoint.Server) (*pump.Copy, error) {
	if !r.recovering && !r.cfg.RefillOnLoss {
		return nil, errRefillUnfinished
	}
	snapshot, reason := refill.Lost.Undelivered(s)
	if reason != "" { // the server was promoted since
		return nil, fmt.Errorf("%w: %s", catalog.ErrRefill, reason)
	}
	router, err := encode.New(refillRoute(r.cfg.Route))
	if err != nil {
		return nil, err
	}
	missing := &catalog.Missing{Delivered: snapshot.Text, Until: refill.Until, Earlier: refill.Earlier}
	total := r.missing
	r.missing = 0 // other rows may be missing the next time
	return &pump.Copy{
		Point: refill.Start, Since: withMargin(snapshot.CommitTime), Router: router, Total: total, MarkDone: r.positions.MarkCopied,
		Open: func(ctx context.Context) (*catalog.Copy, error) {
			if r.copy != nil && r.copy.Point != refill.Start { // another process has created the slot since
				r.closeCopy(ctx)
			}
			return r.openCopy(ctx, missing)
		},
	}, nil
}
