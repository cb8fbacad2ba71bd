package refill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// refillHeader is the header of a refilled record, with the text true, encoded as headers are. It
// comes after all others.
const refillHeader = "refilled"

// A Loss describes the rows that a slot had not delivered and will not deliver, because it is lost or the publication left them out.
type Loss struct {
	Record   checkpoint.Position // of the lost slot
	Cause    error               // why the slot does not continue there with every row
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

// Reason returns Cause in one line, without its advice, which is to refill.
func (l *Loss) Reason() string { return unadvised{l.Cause}.Error() }

// An unadvised is the reason for a refill, whose text does not have the advice of the error, which is to refill.
type unadvised struct{ error }

func (e unadvised) Error() string {
	reason, _, _ := strings.Cut(strings.Join(strings.Fields(e.error.Error()), " "), "; ")
	return reason
}

func (e unadvised) Unwrap() error { return e.error }

// Rows returns the number of all missing rows.
func (l *Loss) Rows() (n int64) {
	for _, t := range l.Tables {
		n += t.Rows
	}
	return n
}

// Find returns what a refill of the gap after record would resend now. It changes nothing. The error wraps ErrNothingLost if
// the slot continues at the record with every row, and [catalog.ErrRefill] if the gap cannot be refilled. It reads the tables,
// which has no time limit.
func Find(ctx context.Context, cfg Config, record *checkpoint.Position, log *slog.Logger) (*Loss, error) {
	l := &Loss{cfg: cfg}
	inspecting, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if err := l.inspect(inspecting, log); err != nil { // also without a record: the wrong server has none
		return nil, err
	}
	if err := l.find(record); err != nil {
		return nil, err
	}
	if record.SystemID == l.server.SystemID && !l.Resumes { // another one has other identities, and a refill that resumes keeps the slot
		if err := l.state.CheckFormer(ctx, l.cfg.Source.Conn, record.Publication, l.missing.Delivered); err != nil {
			return nil, err
		}
	}
	return l, l.count(ctx)
}

// Refused returns an error that wraps [catalog.ErrRefill] if Find would return it for the gap after record because of lost: a slot that
// is missing or lost, a [*checkpoint.GapError], or a [*catalog.LeftOutError]. It returns nil if Find would not, or if that is not
// known, for example because the role may not read a table. server and state are those of cfg.Source, see [Inspect].
func Refused(ctx context.Context, cfg Config, record *checkpoint.Position, lost error, server checkpoint.Server, state *catalog.State) error {
	if _, leftOut := errors.AsType[*catalog.LeftOutError](lost); !leftOut && !isLoss(lost) {
		return nil
	}
	l := &Loss{cfg: cfg, server: server, state: state, WALEnd: server.WALEnd}
	err := l.find(record)
	if err == nil {
		var c *catalog.Copy
		if c, err = catalog.OpenMissing(ctx, cfg.Source, cfg.Tables, l.missing); err == nil {
			c.Close(ctx)
		}
	}
	if errors.Is(err, catalog.ErrRefill) {
		return err
	}
	return nil
}

// replayInstead is how to send rows without a position record that says which are delivered.
const replayInstead = `to send rows of a time or with given ids: outbox-cdc replay --since … --dsn "$OPERATOR_DSN"`

// find sets which rows the slot of record has not delivered.
func (l *Loss) find(record *checkpoint.Position) error {
	if record == nil {
		return fmt.Errorf("%w: relay %q has no position record in %q; %s",
			catalog.ErrRefill, l.cfg.Name, l.cfg.Positions, replayInstead)
	}
	l.Record, l.begins = record.BeforeRefill(), *record
	if err := l.judge(record); err != nil {
		return err
	}
	return l.selectRows()
}

// inspect reads the state of the server, the publication and the slot.
func (l *Loss) inspect(ctx context.Context, log *slog.Logger) (err error) {
	l.server, l.state, l.cfg.Source, err = Inspect(ctx, l.cfg.Source, l.cfg.Tables, log)
	l.WALEnd = l.server.WALEnd
	return err
}

// Inspect reads the state of the server, the publication and the slot of a source. All other connections of reached lead to the
// same server.
func Inspect(ctx context.Context, source replication.Config, tables []string, log *slog.Logger) (s checkpoint.Server, state *catalog.State, reached replication.Config, err error) {
	stream, err := replication.Open(ctx, source, log)
	if err != nil {
		return s, nil, source, err
	}
	reached = stream.Config()
	s = checkpoint.Server{
		SystemID: stream.System().ID, Timeline: stream.System().Timeline, History: checkpoint.History(stream.History()), Slot: source.Slot,
		WALEnd: stream.WALEnd(), Standby: stream.Standby(),
	}
	if err := stream.Close(ctx, 0); err != nil {
		return s, nil, reached, err
	}
	if state, err = catalog.Inspect(ctx, reached.Conn, reached.Publication, reached.Slot, catalog.NewTables(tables)); err != nil {
		return s, nil, reached, err
	}
	if state.Slot != nil {
		s.Confirmed = state.Slot.ConfirmedFlushLSN
	}
	return s, state, reached, nil
}

// judge sets the reason why the slot does not continue at the record, or not with every row.
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
		l.Cause = ErrUnfinished
		l.Resumes = l.leavesOut(record) == nil
		return nil
	case record.Copying:
		return ErrCopyUnfinished
	}
	if l.Cause = l.leavesOut(record); l.Cause == nil {
		return errors.Join(ErrNothingLost, l.state.CheckKnown(record.Publication))
	}
	return nil
}

// leavesOut returns why the slot, which exists, does not deliver every row after the record, or nil.
func (l *Loss) leavesOut(record *checkpoint.Position) error {
	if _, err := record.Continue(l.server); err != nil {
		return err
	}
	if err := l.state.CheckUnaltered(record.Publication); err != nil {
		return err
	}
	if stop := record.Stopped; stop != nil && stop.Recover {
		return fmt.Errorf("the relay stopped with exit code %d: %s", stop.ExitCode, stop.Reason)
	}
	return nil
}

// selectRows finds the snapshot that shows which rows were delivered.
func (l *Loss) selectRows() error {
	if len(l.cfg.Messages) > 0 {
		return fmt.Errorf("%w: rows that are logical messages (outbox.messages) are in the WAL only", catalog.ErrRefill)
	}
	lost, assume := l.Record, l.cfg.Assume
	if r := l.begins.Refill; r != nil && r.Unpruned { // the answer is about the same loss
		assume.Unpruned = true
	}
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
		return fmt.Errorf("%w: %s; %s", catalog.ErrRefill, reason, replayInstead)
	}
	l.Snapshot = snapshot
	l.missing = catalog.Missing{Delivered: snapshot.Text, Recorded: lost.Publication, Assume: assume}
	if isLoss(l.Cause) { // otherwise the slot continues at the record, so this is no copy without slots
		l.missing.Witness = l.cfg.witness(snapshot.Witness)
	}
	if l.Resumes {
		l.missing.Until, l.missing.Earlier = l.begins.Refill.Until, l.begins.Refill.Earlier
	} else {
		l.missing.Earlier = l.begins.Interrupted(l.server)
	}
	return nil
}

// witness returns w for a server, or nil if w is zero.
func (cfg Config) witness(w checkpoint.Witness) *catalog.Witness {
	if w == (checkpoint.Witness{}) {
		return nil
	}
	return &catalog.Witness{XID: w.XID, Hash: w.Hash, Hasher: func(ctx context.Context, t *catalog.Table) (func([][]byte) (uint32, error), error) {
		router, err := cfg.rows().NewRouter(ctx)
		if err != nil {
			return nil, err
		}
		ofTable, err := rows.NewTableRouter(router, *t)
		return ofTable.Hash, err
	}}
}

// count counts the missing rows, after a check that the tables still have all of them.
func (l *Loss) count(ctx context.Context) error {
	c, err := catalog.OpenMissing(ctx, l.cfg.Source, l.cfg.Tables, l.missing)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for _, t := range c.Tables {
		if err := rows.CheckTable(ctx, l.cfg.rows(), t); err != nil {
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
	router, err := cfg.rows().NewRouter(ctx)
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
