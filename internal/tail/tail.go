package tail

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
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// showTimeout is how long a call of show may take, for example because a pager waits for a key. During the
// call the Tail does not read, and Postgres retains WAL for the slot.
const showTimeout = time.Minute

// batchQueue is how many batches may wait to be shown. The pool of the stream, not this number, limits the memory.
const batchQueue = 2

// closeTimeout limits the last status update.
const closeTimeout = 5 * time.Second

// errStopReading is the cause with which a Tail stops reading.
var errStopReading = errors.New("reading stopped by the tail")

// errEnd: every row that was committed before Open has been shown.
var errEnd = errors.New("end of the WAL reached")

// errNotShown: a call of show took longer than showTimeout.
var errNotShown = fmt.Errorf("the output was blocked for %s; reading stopped so that Postgres does not retain WAL", showTimeout)

// A Row is the record for a row, or the reason why there is none.
type Row struct {
	CommitLSN pglogrepl.LSN // of its transaction
	Index     int           // of the row in its transaction, from 0; -1: a change that is no event
	ID        string        // of the event; empty: it has none, or the row lacks the column

	// Record is the record that a Relay would send; nil: none. It is valid until show returns.
	Record *sink.Record

	// Reason is why the row cannot be delivered. If Record is set, it is the dead letter. Otherwise a
	// Relay would stop at this row, with ExitCode.
	Reason   string
	ExitCode int
}

// A source is the part of a [replication.Stream] that a Tail needs.
type source interface {
	Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error
	Close(ctx context.Context, confirmed pglogrepl.LSN) error
}

// A Tail makes records from rows without sending them. It is used once.
type Tail struct {
	cfg     relay.Config
	stream  source
	tracker *checkpoint.Tracker
	pump    *pump.Pump
	show    func(*Row) error
	showErr error // error of show

	published *catalog.Publication
	catalog   pump.Catalog

	walEnd pglogrepl.LSN // of the server when the Tail was opened
	until  pglogrepl.LSN // Run returns when it has read up to here; 0: it goes on
}

// Open connects to the source and creates a temporary slot for the Tail. The slot starts at the current
// position or, if slot is not empty, at the position of that slot. It uses Source (without its Slot),
// Route, Messages, DeadLetterTopic and StartupTimeout of cfg. The caller must call Run.
func Open(ctx context.Context, cfg relay.Config, slot string, log *slog.Logger) (*Tail, error) {
	router, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	cfg.Positions = position.Place{} // a Tail has no position record, and needs no snapshots
	cfg = cfg.WithDefaults()
	contact, cancel := context.WithTimeout(ctx, cfg.StartupTimeout)
	defer cancel()
	stream, state, err := catalog.OpenTail(contact, cfg.Source, cfg.Tables, slot, log)
	if err != nil {
		return nil, err
	}
	if err := catalog.Diagnose(contact, stream.Config(), stream.Start(contact, 0)); err != nil {
		_ = stream.Close(contact, 0)
		return nil, err
	}
	neighbours := pump.NewNeighbours(log)
	neighbours.Update(ctx, state, func(t catalog.Table) bool { return router.Check(rows.Relation(t)) == nil })
	t := newTail(cfg, router, stream, neighbours, log)
	t.walEnd, t.published, t.catalog = state.WALEnd, state.Publication, &pump.ServerCatalog{Rows: cfg.Rows(), Stream: stream.Config(), Tables: catalog.NewTables(cfg.Tables)}
	return t, nil
}

// UntilEnd makes Run return when it has shown every row that was committed before Open.
func (t *Tail) UntilEnd() { t.until = t.walEnd }

// newTail returns a Tail of a started stream.
func newTail(cfg relay.Config, router *encode.Router, stream source, neighbours *pump.Neighbours, log *slog.Logger) *Tail {
	t := &Tail{cfg: cfg, stream: stream, tracker: checkpoint.New(0, nil)}
	deadLetters := pump.NewDeadLetters(pump.DeadLetterConfig{
		Topic: cfg.DeadLetterTopic, Slot: cfg.Source.Slot, IDColumn: cfg.Route.Columns.ID, TopicTimeout: cfg.MissingTopicTimeout, Log: log,
	})
	t.pump = pump.New(pump.Config{
		Router: router, Writer: writer{t}, Outcomes: pump.NewOutcomes(t.tracker, deadLetters, nil), Progress: new(pump.Progress),
		Neighbours: neighbours, OnUpdate: cfg.Route.OnUpdate, Messages: cfg.Messages, Log: log,
	})
	return t
}

// Run calls show for each row, in the order of the stream, and also for rows that cannot be delivered. It returns nil if ctx is done or
// the end of UntilEnd is reached, and otherwise the error of show or of the stream.
func (t *Tail) Run(ctx context.Context, show func(*Row) error) error {
	t.show = show
	t.pump.StartSession(ctx, 0, t.published, t.catalog)
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	batches := make(chan *replication.Batch, batchQueue)
	read := make(chan error, 1)
	go func() { // the receive from read waits for it; the slot must be released without waiting for show
		defer close(batches)
		err := t.stream.Run(reading, t.tracker.Confirmed, batches)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = t.stream.Close(last, t.tracker.Confirmed())
		read <- err
	}()
	err := t.showBatches(reading, stop, batches)
	stop(errStopReading)
	readErr := <-read
	switch {
	case t.showErr != nil:
		return t.showErr
	case ctx.Err() != nil, errors.Is(err, errEnd):
		return nil
	case err != nil:
		return err
	}
	return readErr
}

// showBatches shows the rows of batches, until batches is closed or an error occurs.
func (t *Tail) showBatches(ctx context.Context, stop context.CancelCauseFunc, batches <-chan *replication.Batch) error {
	late := time.AfterFunc(showTimeout, func() { stop(errNotShown) })
	defer late.Stop()
	for {
		late.Stop()
		batch, ok := <-batches
		if !ok || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, m := range batch.Messages {
			late.Reset(showTimeout)
			if err := t.showMessage(ctx, m); err != nil {
				return err
			}
			if t.until != 0 && t.tracker.Confirmed() >= t.until {
				return errEnd
			}
		}
		batch.Release()
	}
}

// showMessage shows the row of a message, if it has one.
func (t *Tail) showMessage(ctx context.Context, m replication.Message) error {
	_, err := t.pump.Handle(ctx, m)
	if err != nil && t.showErr == nil {
		return t.showRejected(err)
	}
	return err
}

// showRejected shows the row at which a Relay would stop with err. It returns err if err is not about a row.
func (t *Tail) showRejected(err error) error {
	shown := &Row{Index: -1, ExitCode: fault.ExitCode(err)}
	if row, ok := errors.AsType[*pump.DeliveryError](err); ok {
		shown.CommitLSN, shown.Index, shown.ID, shown.Reason = row.CommitLSN, row.Row, row.ID, row.Err.Error()
		if bad, ok := errors.AsType[*encode.RowError](err); ok {
			shown.ID = bad.ID
		}
	} else if change, ok := errors.AsType[*pump.ChangeError](err); ok {
		shown.CommitLSN, shown.Reason = change.CommitLSN, change.Error()
	} else if _, ok := errors.AsType[*encode.ColumnError](err); ok {
		return nil // about a table: each of its rows reports it
	} else {
		return err
	}
	t.showErr = t.show(shown)
	return t.showErr
}

// A writer is the [pump.Writer] of a Tail.
type writer struct{ *Tail }

// Send shows a record and acknowledges it.
func (t writer) Send(_ context.Context, rec *sink.Record) error {
	seq := checkpoint.Seq(rec.Seq)
	shown := &Row{Record: rec}
	var ok bool
	if shown.CommitLSN, shown.Index, ok = t.pump.Row(); !ok { // a non-transactional message
		shown.CommitLSN, shown.Index, _ = t.tracker.Locate(seq)
	}
	if dead, ok := encode.ParseDeadLetter(rec); ok && rec.Topic == t.cfg.DeadLetterTopic {
		shown.ID, shown.Reason = dead.EventID(t.cfg.Route.Columns.ID), dead.Reason
	} else if i := slices.IndexFunc(rec.Headers, func(h sink.Header) bool { return h.Key == encode.IDHeader }); i >= 0 {
		shown.ID = string(rec.Headers[i].Value)
	}
	if t.showErr = t.show(shown); t.showErr != nil {
		return t.showErr
	}
	return t.tracker.Ack(seq)
}

// Flush does nothing, because Send shows a record immediately.
func (writer) Flush() {}
