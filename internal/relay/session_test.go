package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A stop in the middle of a transaction reads on to its end, publishes nothing of the next
// one, and reports the position.
func TestSessionStopsAtATransactionBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{next: make(chan struct{}), script: joinScripts(
			transaction(100, 110, "a", 1), transaction(200, 210, "a", 2, 3), transaction(300, 310, "a", 4))}
		prod := newScriptedProducer()
		s := newTestSession(t, src, prod, 0, interruptedTx{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		for range 6 { // up to row 2, of two
			src.next <- struct{}{}
		}
		synctest.Wait()
		stop()
		for range 2 { // row 3 and the commit
			src.next <- struct{}{}
		}
		if err := <-ended; err != nil {
			t.Errorf("session ended with %v", err)
		}
		if got, want := prod.records(), "a/1 a/2 a/3"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if src.reported != 210 {
			t.Errorf("reported %s, want 0/D2", src.reported)
		}
	})
}

// A stop waits for acknowledgements, and no longer than the drain timeout.
func TestSessionDrainsUntilTheDrainTimeout(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &scriptedSource{script: joinScripts(transaction(100, 110, "a", 1), transaction(200, 210, "b", 2))}
				prod := newScriptedProducer()
				prod.auto = false
				s := newTestSession(t, src, prod, 50, interruptedTx{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- s.run(ctx) }()
				synctest.Wait()
				stop()
				time.Sleep(time.Second)
				prod.ack(1)
				synctest.Wait()
				want, took := pglogrepl.LSN(110), drainTimeout
				if answered {
					prod.ack(1)
					want, took = 210, time.Second
				}
				err := <-ended
				if errors.Is(err, errDrainTimeout) == answered || (answered && err != nil) {
					t.Errorf("session ended with %v", err)
				}
				if code := ExitCode(err); code != ExitOK {
					t.Errorf("exit code %d", code)
				}
				if src.reported != want {
					t.Errorf("reported %s, want %s", src.reported, want)
				}
				if d := time.Since(began); d != took {
					t.Errorf("took %v, want %v", d, took)
				}
			})
		})
	}
}

// A refused record ends the session with its place in the log; what was before it is
// confirmed, nothing after it.
func TestSessionEndsAtARejectedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: joinScripts(
			transaction(100, 110, "a", 1), transaction(200, 210, "b", 2, 3, 4), transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		refused := &sink.RecordError{Topic: "order", Reason: errors.New("too large")}
		prod.reject = func(r *sink.Record) error {
			if string(r.Value) == "3" {
				return refused
			}
			return nil
		}
		err := newTestSession(t, src, prod, 0, interruptedTx{}).run(t.Context())
		if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "transaction 0/C8, row 1: ") {
			t.Errorf("session ended with %v", err)
		}
		if code := ExitCode(err); code != ExitBadRecord {
			t.Errorf("exit code %d, want %d", code, ExitBadRecord)
		}
		if src.reported != 110 {
			t.Errorf("reported %s, want 0/6E", src.reported)
		}
	})
}

// A row that cannot become a record: everything before it is delivered.
func TestSessionDeliversWhatPrecedesABadRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: joinScripts(
			transaction(100, 110, "a", 1), script{beginMessage(200), insertMessage("b", 2), insertInto("no topic", "b", 3), commitMessage(200, 210)}, transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 0, interruptedTx{})
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		prod.ack(2)
		err := <-ended
		var row *encode.RowError
		if !errors.As(err, &row) || row.ID != "id-3" || !strings.HasPrefix(err.Error(), "transaction 0/C8, row 1: ") {
			t.Errorf("session ended with %v", err)
		}
		if got := prod.records(); got != "a/1 b/2" {
			t.Errorf("sent %s", got)
		}
		if src.reported != 110 {
			t.Errorf("reported %s, want 0/6E", src.reported)
		}
	})
}

// A connection that is lost in a transaction causes no duplicates: the sink drains, and the next
// session skips what was acknowledged, also if the connection is lost again.
func TestSessionResumesAnInterruptedTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := fmt.Errorf("read: %w", replication.ErrUnreachable)
		whole := transaction(200, 210, "a", 2, 3, 4, 5)
		var start pglogrepl.LSN
		var interrupted interruptedTx
		var sent []string
		for _, step := range []struct {
			script script
			want   interruptedTx
		}{
			{joinScripts(transaction(100, 110, "a", 1), whole[:3]), interruptedTx{200, 2}}, // rows 2 and 3
			{joinScripts(), interruptedTx{200, 2}},                                         // nothing came
			{joinScripts(whole[:2]), interruptedTx{200, 2}},                                // lost before what is known
			{joinScripts(whole[:4]), interruptedTx{200, 3}},                                // one row further
			{joinScripts(whole), interruptedTx{}},
		} {
			src := &scriptedSource{script: step.script, err: lost}
			prod := newScriptedProducer()
			s := newTestSession(t, src, prod, start, interrupted)
			if err := s.run(t.Context()); !errors.Is(err, replication.ErrUnreachable) {
				t.Fatalf("session ended with %v", err)
			}
			start, interrupted = s.tracker.Confirmed(), s.pump.interruptedTransaction()
			sent = append(sent, prod.sent...)
			if diff := cmp.Diff(step.want, interrupted, cmp.AllowUnexported(interruptedTx{})); diff != "" {
				t.Errorf("interrupted (-want +got):\n%s", diff)
			}
		}
		if got, want := strings.Join(sent, " "), "a/1 a/2 a/3 a/4 a/5"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if start != 210 {
			t.Errorf("confirmed %s", start)
		}
	})
}

// A source that ends by itself is let go at once: a server that stops waits for its
// connections, and the sink may take long to drain.
func TestSessionClosesALostSourceBeforeItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: joinScripts(transaction(100, 110, "a", 1), transaction(200, 210, "a", 2)), err: replication.ErrServerStopping}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 0, interruptedTx{})
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		if !src.closed {
			t.Error("the connection is held while the sink drains")
		}
		prod.ack(2)
		if err := <-ended; !errors.Is(err, replication.ErrServerStopping) {
			t.Errorf("session ended with %v", err)
		}
		if got := s.tracker.Confirmed(); got != 210 {
			t.Errorf("confirmed %s for the next session", got)
		}
	})
}

// Keepalives move the position of an idle outbox, and never past what is outstanding.
func TestPumpConfirmsKeepalivesOfAnIdleOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: joinScripts(script{keepalive(150), beginMessage(200), keepalive(195), insertMessage("a", 1), commitMessage(200, 210), keepalive(400)})}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 100, interruptedTx{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		synctest.Wait()
		if got := s.tracker.Confirmed(); got != 150 {
			t.Errorf("confirmed %s while a record is outstanding, want 0/96", got)
		}
		prod.ack(1)
		if got := s.tracker.Confirmed(); got != 400 {
			t.Errorf("confirmed %s, want 0/190", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A kind of change that was not published when the session began means that the
// publication was changed.
func TestPumpStopsAtAnUnpublishedKindOfChange(t *testing.T) {
	b := binary.BigEndian.AppendUint32([]byte{'T'}, 1)
	truncate := walData(binary.BigEndian.AppendUint32(append(b, 0), outboxOID))
	script := joinScripts(script{beginMessage(200), truncate, commitMessage(200, 210)})
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t, &scriptedSource{script: script}, newScriptedProducer(), 0, interruptedTx{})
		err := s.run(t.Context())
		if ExitCode(err) != ExitNoDelivery || !strings.Contains(err.Error(), "TRUNCATE of public.outbox") {
			t.Errorf("session ended with %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		src := &scriptedSource{script: script, err: replication.ErrServerStopping}
		s := newTestSession(t, src, newScriptedProducer(), 0, interruptedTx{})
		s.pump.published = &catalog.Publication{Insert: true, Truncate: true}
		if err := s.run(t.Context()); !errors.Is(err, replication.ErrServerStopping) || s.tracker.Confirmed() != 210 {
			t.Errorf("session ended with %v at %s", err, s.tracker.Confirmed())
		}
	})
}

// While one record is not acknowledged, others go on, but not without end.
func TestPumpBoundsTheTrackersSpan(t *testing.T) {
	const span = 100
	synctest.Test(t, func(t *testing.T) {
		long := script{outboxRelation()}
		for n := range span + 10 {
			lsn := pglogrepl.LSN(1000 + 10*n)
			long = append(long, beginMessage(lsn), insertMessage("a", n), commitMessage(lsn, lsn+5))
		}
		prod := newScriptedProducer()
		prod.heldSeq = 1
		s := newTestSession(t, &scriptedSource{script: long, err: replication.ErrServerStopping}, prod, 0, interruptedTx{})
		s.pump.maxSpan = span
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		if got := len(prod.sent); got != span {
			t.Errorf("%d records sent behind one that is not acknowledged, want %d", got, span)
		}
		prod.ack(1)
		if err := <-ended; !errors.Is(err, replication.ErrServerStopping) {
			t.Error(err)
		}
		if got := len(prod.sent); got != span+10 {
			t.Errorf("%d records sent in the end", got)
		}
	})
}

// After a promotion, on another server or with another slot, the same LSN names other data.
func TestSessionResumesInItsOwnSlotOnly(t *testing.T) {
	home := slotIdentity{system: replication.System{ID: "7", Timeline: 1, Database: "app"}, slot: "s"}
	p := resumePoint{slot: home, confirmed: 500, interrupted: interruptedTx{600, 3}}
	if got := p.forSlot(home); got != p {
		t.Errorf("same slot: %+v", got)
	}
	for name, change := range map[string]func(*slotIdentity){
		"timeline": func(id *slotIdentity) { id.system.Timeline++ }, "system": func(id *slotIdentity) { id.system.ID = "8" },
		"slot": func(id *slotIdentity) { id.slot = "t" },
	} {
		other := home
		change(&other)
		if got := p.forSlot(other); got != (resumePoint{slot: other}) {
			t.Errorf("another %s: %+v", name, got)
		}
	}
	if got := (resumePoint{}).forSlot(home); got.confirmed != 0 {
		t.Errorf("first session: %+v", got)
	}
}

// A confirmed transaction is measured from its commit, and its snapshot goes to the position writer.
func TestRelayReportsConfirmedTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type measured struct {
			took  time.Duration
			trace string
		}
		var got []measured
		r, err := New(Config{
			Route:     encode.Config{Columns: encode.DefaultColumns(), Topic: "${route}"},
			Delivered: func(took time.Duration, trace string) { got = append(got, measured{took, trace}) },
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		time.Sleep(time.Second)
		r.observeConfirmed(checkpoint.Transaction{CommitTime: committed})
		r.observeConfirmed(checkpoint.Transaction{CommitTime: committed, TraceID: [16]byte{0: 0x4b, 15: 0x36}})
		r.observeConfirmed(checkpoint.Transaction{CommitTime: time.Now().Add(time.Hour)}) // of a server whose clock is ahead
		r.observeConfirmed(checkpoint.Transaction{})                                      // its commit time is unknown
		want := []measured{{time.Second, ""}, {time.Second, "4b000000000000000000000000000036"}, {0, ""}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
		snapshot := checkpoint.Snapshot{EndLSN: 200, Text: "7:9:8"}
		r.observeConfirmed(checkpoint.Transaction{Snapshot: snapshot})
		r.observeConfirmed(checkpoint.Transaction{CommitTime: committed})
		if got := r.positions.snapshot.Load(); got == nil || *got != snapshot {
			t.Errorf("the position writer has %v", got)
		}
	})
}
