package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/parking/release"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An ownership is the time during which this process owns the position store, over any number of sessions. It has
// the Tracker with the records in flight, the writer that waits for their outcomes, and the pump. Between
// two sessions the fence is closed, requests on the wire get their responses, and the ownership still records
// positions.
type ownership struct {
	id           slotIdentity
	tracker      *checkpoint.Tracker
	writer       sink.Writer
	deadLetters  *pump.DeadLetters
	outcomes     *pump.Outcomes
	pump         *pump.Pump
	positions    *position.Writer
	checkOrder   func(context.Context) error
	draining     func(context.Context)
	fence        fence
	releaser     *release.Releaser // nil: no keys are parked
	drainTimeout time.Duration
	log          *slog.Logger

	life      context.Context //nolint:containedctx // ends with the first failure, or with errStopped during a session
	fail      context.CancelCauseFunc
	stopWrite context.CancelCauseFunc // ends the writer
	written   chan struct{}           // closed when the writer has ended
	stopRest  context.CancelFunc      // stops the goroutines beside the writer
	rest      sync.WaitGroup
	over      bool // stop was called; used by the goroutine that runs the sessions only
}

// run starts the goroutines that also run between sessions: the writer, the position writer, the log of
// dead letters, and the check of the broker.
func (t *ownership) run(ctx context.Context) {
	t.life, t.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	writing, stopWrite := context.WithCancelCause(context.WithoutCancel(ctx))
	t.stopWrite = stopWrite
	go func() { // drain and abandon wait for it
		defer close(t.written)
		err := t.writer.Run(writing, func(seqs []uint64, err error) {
			if err == nil {
				err = t.ackRecords(seqs)
			}
			if err != nil {
				t.fail(t.outcomes.Explain(seqs, err)) // nothing after a lost record may be confirmed
			}
		})
		if err != nil {
			t.fail(err)
		}
	}()
	beside, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	t.stopRest = stopRest
	for _, run := range []func(context.Context) error{t.positions.Run, t.deadLetters.LogNew, t.checkOrder, t.releaser.Run} {
		t.rest.Go(func() {
			if err := run(beside); err != nil {
				t.fail(err)
			}
		})
	}
}

// runSession sends the rows that a session reads, until the session ends, ctx is done, or an error occurs
// from which another session cannot recover. If the session ends, the ownership continues, and runSession
// returns why the session ended. Otherwise runSession reads to the end of a transaction, waits for at most
// drainTimeout until every record has an outcome, and ends the ownership and the session.
//
// watch reads the catalog until its context ends. An error of watch ends the session.
//
// A session has three contexts: its own life, which ends with the reading; running, for the pump, which ends with that life or with hard;
// and hard, which ends drainTimeout after the life of the ownership.
func (t *ownership) runSession(ctx context.Context, s *Session, published *catalog.Publication, c pump.Catalog, watch func(context.Context) error) error {
	defer context.AfterFunc(ctx, func() { t.fail(errStopped) })()
	hard, cancel := withGrace(ctx, t.life, t.written, t.drainTimeout)
	defer cancel()

	t.fence.open(s.stream, s.clock)
	t.writer.Flush() // records may have waited since the last session
	ended := make(chan struct{})
	defer func() { <-ended }()
	context.AfterFunc(s.life, func() { //nolint:contextcheck // of the session
		defer close(ended)
		t.fence.close()
		t.writer.Flush() // after CloseSend, Run detects the closed fence only then
	})

	var found error // by watch
	var watched sync.WaitGroup
	watched.Go(func() {
		if found = watch(s.life); found != nil {
			t.failSession(s, found)
		}
	})
	running, release := s.during(hard)
	t.pump.StartSession(running, s.from, published, c)
	s.positions.Store(t.positions) // not before: the Tracker would still have recognized what the last session has read
	if err := t.pump.Run(running, t.life.Done(), s.batches); err != nil && running.Err() == nil {
		t.failSession(s, t.explainSend(running, err))
	}
	release()
	if !t.ends(ctx) {
		s.leave(ctx, cmp.Or(t.cause(), errStopReading))
		watched.Wait()
		return cmp.Or(t.cause(), found, s.cause()) // another session recovers
	}
	cause := t.cause()
	err := t.drain(hard)
	unsaved := t.stop(ctx, s)
	watched.Wait()
	if ctx.Err() == nil {
		return t.undelivered(cause)
	}
	return cmp.Or(err, unsaved)
}

// cause returns why the life of the ownership has ended, or nil.
func (t *ownership) cause() error { return context.Cause(t.life) }

// errStopped ends the life of an ownership when the relay stops.
var errStopped = errors.New("the relay stops")

// failSession ends the session s if another one can recover from err, even inside a transaction. Otherwise it ends the ownership.
func (t *ownership) failSession(s *Session, err error) {
	if fault.PatienceFor(err) == fault.Never {
		t.fail(err)
	} else {
		s.stop(err)
	}
}

// ends reports whether the ownership ends with the session: the relay stops, or no other session can recover from its failure.
func (t *ownership) ends(ctx context.Context) bool {
	return ctx.Err() != nil || fault.PatienceFor(t.cause()) == fault.Never
}

// explainSend returns why the writer does not accept records, if err says only that, and otherwise err.
func (t *ownership) explainSend(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*pump.SendError](err); ok {
		select {
		case <-t.written:
			return cmp.Or(t.cause(), err)
		case <-ctx.Done():
		}
	}
	return err
}

// undelivered returns err, which stops the relay: see [fault.Undelivered].
func (t *ownership) undelivered(err error) error {
	if oldest, ok := t.tracker.Unconfirmed(); ok {
		return fault.Undelivered(err, oldest)
	}
	return err
}

// drain waits until every record that the writer has accepted has an outcome, or until ctx ends. While the
// fence is closed, it waits for the requests on the wire only.
func (t *ownership) drain(ctx context.Context) error {
	t.draining(ctx)
	t.deadLetters.HoldUp()
	t.writer.CloseSend()
	select {
	case <-t.written:
	case <-ctx.Done():
		t.stopWrite(context.Cause(ctx))
		<-t.written
	}
	if n := t.tracker.Outstanding(); n > 0 {
		return fmt.Errorf("%w: %d unacknowledged", fault.ErrDrainTimeout, n)
	}
	if commitLSN, acked, open := t.tracker.OpenTransaction(); open {
		again := acked - t.positions.Resumable(commitLSN)
		switch {
		case again > 0 && t.pump.Copying():
			return fmt.Errorf("%w: the copy of the table was not finished, and %d of its rows will be resent", fault.ErrDrainTimeout, again)
		case again > 0:
			return fmt.Errorf("%w: transaction %s was not read to its end, and %d of its rows will be resent", fault.ErrDrainTimeout, commitLSN, again)
		}
	}
	return nil
}

// stop ends the ownership after the writer has ended. It records the last position, and the session confirms
// it. s is nil if there is no session.
func (t *ownership) stop(ctx context.Context, s *Session) error {
	t.over = true
	t.stopRest()
	t.rest.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	missing := "not recorded"
	_, err := t.positions.Write(last)
	if s != nil {
		if unconfirmed := s.close(ctx, errStopReading); err == nil && unconfirmed != nil {
			missing, err = "not confirmed to Postgres", unconfirmed
		}
	}
	t.outcomes.Abandon()
	t.fail(nil)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: position %s is %s: %w", fault.ErrPositionUnsaved, t.tracker.Confirmed(), missing, err)
}

// stopIdle ends the ownership while there is no session: it waits for the responses to the requests on
// the wire, and records the position.
func (t *ownership) stopIdle(ctx context.Context) error {
	hard, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), t.drainTimeout, fault.ErrDrainTimeout)
	defer cancel()
	err := t.drain(hard)
	return errors.Join(err, t.stop(ctx, nil))
}

// abandon ends the ownership without draining, because another one starts. The broker may still store
// requests on the wire.
func (t *ownership) abandon(cause error) {
	t.fail(cause)
	t.stopWrite(cause)
	<-t.written
	t.stopRest()
	t.rest.Wait()
	t.outcomes.Abandon()
}

// ackRecords acknowledges records. It is called from one goroutine at a time.
func (t *ownership) ackRecords(seqs []uint64) error {
	defer t.releaser.SignalAck()
	return t.outcomes.Ack(seqs)
}

// withGrace returns a context that ends d after life, or once the writer has ended, too: nothing is acknowledged after that.
func withGrace(ctx, life context.Context, written <-chan struct{}, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(life, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(fault.ErrDrainTimeout)
		case <-written:
			cancel(errWriterEnded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

var errWriterEnded = errors.New("the writer has ended")
