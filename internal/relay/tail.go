package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// showTimeout is how long a Tailed may take to be shown. While nothing is read, the server keeps its
// log for the slot, and somebody may have left a pager open.
const showTimeout = time.Minute

// errNotShown: what a tail shows was not taken in time.
var errNotShown = fmt.Errorf("nothing was taken for %s, and Postgres keeps its log for what is not", showTimeout)

// A Tailed is what would become of a row.
type Tailed struct {
	CommitLSN pglogrepl.LSN // of its transaction
	Index     int           // of the row in its transaction, from 0; -1: it is a change that is no event

	// Record is what would be sent; nil: nothing. It is valid until the function that it is shown
	// to returns.
	Record *sink.Record

	// Reason says why the row cannot be sent as it should. With a Record, that is its dead letter.
	// Without, a Relay would end here, with ExitCode.
	Reason   string
	ExitCode int
}

// A Tail makes records of rows without sending any. It is used once.
type Tail struct {
	cfg     Config
	stream  source
	tracker *checkpoint.Tracker
	pump    *pump
	show    func(*Tailed) error
	showErr error // what show returned
}

// OpenTail reaches the source and makes a slot that lives as long as the Tail: it begins now, or, if
// slot is not empty, where that slot stands. Of cfg, Source but its Slot, Route, Messages,
// DeadLetterTopic and StartupTimeout count. The Tail must be run.
func OpenTail(ctx context.Context, cfg Config, slot string, log *slog.Logger) (*Tail, error) {
	router, err := encode.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	cfg.PositionTopic = "" // the messages that a relay writes to itself are of no use here
	cfg = cfg.withDefaults()
	contact, cancel := context.WithTimeout(ctx, cfg.StartupTimeout)
	defer cancel()
	stream, state, err := catalog.OpenTail(contact, cfg.Source, slot, log)
	if err != nil {
		return nil, err
	}
	if err := catalog.Diagnose(contact, stream.Config(), stream.Start(contact, 0)); err != nil {
		_ = stream.Close(contact, 0)
		return nil, err
	}
	return newTail(cfg, router, stream, state.Publication, log), nil
}

// newTail returns the Tail of a stream that has been started.
func newTail(cfg Config, router *encode.Router, stream source, published *catalog.Publication, log *slog.Logger) *Tail {
	t := &Tail{cfg: cfg, stream: stream, tracker: checkpoint.New(0, nil)}
	f := new(flow)
	f.startSession(t.tracker)
	t.pump = &pump{
		decoder: decoder.New(), router: router, tracker: t.tracker, writer: tailWriter{t}, flow: f,
		published: published, updates: newUpdatePolicy(cfg.Route.OnUpdate, log), messages: cfg.Messages,
		deadLetters: newDeadLetters(cfg.DeadLetterTopic, cfg.Source.Slot, log),
	}
	return t
}

// Run calls show with what would become of each row, in the order of the stream, until ctx is done, an
// error of show, which it returns, or the end of the stream. A row that cannot be sent is shown and
// does not end it.
func (t *Tail) Run(ctx context.Context, show func(*Tailed) error) error {
	t.show = show
	t.pump.router.SetDescribe((&Relay{cfg: t.cfg}).newDescribe(ctx))
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	batches := make(chan *replication.Batch, batchQueue)
	read := make(chan error, 1)
	go func() { // read waits for it; the slot must not wait for show
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
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	return readErr
}

// showBatches takes batches until there are none, or one cannot be taken.
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
		}
		batch.Release()
	}
}

// showMessage takes one message, and shows what it leads to.
func (t *Tail) showMessage(ctx context.Context, m replication.Message) error {
	switch m := m.(type) {
	case *replication.Keepalive:
		t.tracker.Keepalive(m.WALEnd)
	case *replication.WALData:
		_, err := t.pump.pumpMessage(ctx, m)
		if err != nil && t.showErr == nil {
			return t.showRejected(err)
		}
		return err
	}
	return nil
}

// showRejected shows a row that would end a Relay with err, if that is what err is about.
func (t *Tail) showRejected(err error) error {
	shown := &Tailed{Index: -1, ExitCode: ExitCode(err)}
	if row, ok := errors.AsType[*deliveryError](err); ok {
		shown.CommitLSN, shown.Index, shown.Reason = row.commitLSN, row.row, row.err.Error()
	} else if change, ok := errors.AsType[*changeError](err); ok {
		shown.CommitLSN, shown.Reason = change.commitLSN, change.Error()
	} else if as[*encode.ColumnError](err) {
		return nil // of a table: each of its rows will say so
	} else {
		return err
	}
	t.showErr = t.show(shown)
	return t.showErr
}

// A tailWriter is the publisher of a Tail.
type tailWriter struct{ *Tail }

// Send shows a record, and counts it as sent.
func (t tailWriter) Send(_ context.Context, rec *sink.Record) error {
	seq := checkpoint.Seq(rec.Seq)
	shown := &Tailed{Record: rec}
	if tx := t.pump.tx; tx != nil {
		shown.CommitLSN, shown.Index = tx.CommitLSN, tx.rows-1
	} else { // a message of no transaction, which is one by itself
		shown.CommitLSN, shown.Index, _ = t.tracker.Locate(seq)
	}
	if rec.Topic == t.cfg.DeadLetterTopic {
		for _, h := range rec.Headers {
			if h.Key == encode.DeadLetterReason {
				shown.Reason = string(h.Value)
			}
		}
	}
	if t.showErr = t.show(shown); t.showErr != nil {
		return t.showErr
	}
	return t.tracker.Ack(seq)
}

// Flush does nothing: a record is shown at once.
func (tailWriter) Flush() {}
