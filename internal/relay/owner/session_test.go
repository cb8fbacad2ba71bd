package owner

import (
	"context"
	"encoding/binary"
	"errors"
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
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// When the relay stops in the middle of a transaction, it reads up to the commit, publishes nothing of the next
// transaction, and confirms the position.
func TestSessionStopsAtATransactionBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Next: make(chan struct{}), Script: streamtest.Join(
			streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(200, 210, "a", 2, 3), streamtest.Transaction(300, 310, "a", 4))}
		prod := newScriptedProducer()
		s := newTestSession(t, src, prod, 0)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		for range 6 { // up to row 2, the first of two rows
			src.Next <- struct{}{}
		}
		synctest.Wait()
		stop()
		for range 2 { // row 3 and the commit
			src.Next <- struct{}{}
		}
		if err := <-ended; err != nil {
			t.Errorf("session ended with %v", err)
		}
		if got, want := prod.records(), "a/1 a/2 a/3"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if src.Confirmed != 210 {
			t.Errorf("reported %s, want 0/D2", src.Confirmed)
		}
	})
}

// When the relay stops, it waits for acknowledgements, but not longer than the drain timeout.
func TestSessionDrainsUntilTheDrainTimeout(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(200, 210, "b", 2))}
				prod := newScriptedProducer()
				prod.auto = false
				s := newTestSession(t, src, prod, 50)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- s.run(ctx) }()
				synctest.Wait()
				stop()
				bubble.Sleep(time.Second)
				prod.ack(1)
				synctest.Wait()
				want, took := pglogrepl.LSN(110), drainTimeout
				if answered {
					prod.ack(1)
					want, took = 210, time.Second
				}
				err := <-ended
				if errors.Is(err, fault.ErrDrainTimeout) == answered || (answered && err != nil) {
					t.Errorf("session ended with %v", err)
				}
				if code := fault.ExitCode(err); code != exit.OK {
					t.Errorf("exit code %d", code)
				}
				if src.Confirmed != want {
					t.Errorf("reported %s, want %s", src.Confirmed, want)
				}
				if d := bubble.Since(began); d != took {
					t.Errorf("took %v, want %v", d, took)
				}
			})
		})
	}
}

// If Kafka rejects a record, the session ends with an error that names its row. The relay confirms the transactions
// before it and no later ones.
func TestSessionEndsAtARejectedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(
			streamtest.Transaction(100, 110, "a", 1), streamtest.Transaction(200, 210, "b", 2, 3, 4), streamtest.Transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		refused := &sink.RecordError{Topic: "order", Reason: errors.New("too large")}
		prod.reject = func(r *sink.Record) error {
			if string(r.Value) == "3" {
				return refused
			}
			return nil
		}
		err := newTestSession(t, src, prod, 0).run(t.Context())
		if !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "transaction 0/C8, row 1: ") {
			t.Errorf("session ended with %v", err)
		}
		if code := fault.ExitCode(err); code != exit.BadRecord {
			t.Errorf("exit code %d, want %d", code, exit.BadRecord)
		}
		if src.Confirmed != 110 {
			t.Errorf("reported %s, want 0/6E", src.Confirmed)
		}
	})
}

// The relay delivers everything before a row that it cannot convert to a record.
func TestSessionDeliversWhatPrecedesABadRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(
			streamtest.Transaction(100, 110, "a", 1), streamtest.Script{streamtest.Begin(200), streamtest.Insert("b", 2), streamtest.InsertInto("no topic", "b", 3), streamtest.Commit(200, 210)}, streamtest.Transaction(300, 310, "c", 5))}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 0)
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
		if src.Confirmed != 110 {
			t.Errorf("reported %s, want 0/6E", src.Confirmed)
		}
	})
}

// The relay delivers everything before a row that Postgres cannot stream. If that takes too long, the advice is not
// to skip anything.
func TestSessionDeliversWhatPrecedesARowThatCannotBeStreamed(t *testing.T) {
	for acked, want := range map[int]pglogrepl.LSN{2: 110, 1: 110, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1), streamtest.Script{
				streamtest.Begin(200), streamtest.Insert("b", 2), &replication.RowError{CommitLSN: 200, Err: replication.ErrRow},
			})}
			prod := newScriptedProducer()
			prod.auto = false
			s := newTestSession(t, src, prod, 0)
			ended := make(chan error, 1)
			go func() { ended <- s.run(t.Context()) }()
			bubble.Sleep(time.Second)
			prod.ack(acked)
			err := <-ended
			if !errors.Is(err, replication.ErrRow) || fault.ExitCode(err) != exit.BadRecord {
				t.Errorf("%d acknowledged: session ended with %v", acked, err)
			}
			if advice := fault.Advice(err); strings.Contains(advice, "advance('<slot>', '0/C8'") != (acked > 0) || strings.Contains(advice, "Do not skip") != (acked == 0) {
				t.Errorf("%d acknowledged: %v\n%s", acked, err, advice)
			}
			if got := prod.records(); got != "a/1 b/2" || src.Confirmed != want {
				t.Errorf("%d acknowledged: sent %s, reported %s", acked, got, src.Confirmed)
			}
		})
	}
}

// If the connection is lost during a transaction, there are no duplicates. The next session reads the rows that
// already have numbers again, and continues after them. That also holds if the connection is lost again before
// that.
func TestOwnershipGoesOnInAnInterruptedTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := streamtest.Transaction(200, 210, "a", 2, 3, 4, 5)
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, nil, prod, 0)
		for i, step := range []struct {
			script streamtest.Script
			acked  int
			sent   string
		}{
			{streamtest.Join(streamtest.Transaction(100, 110, "a", 1), whole[:3]), 0, "a/1 a/2 a/3"},
			{streamtest.Join(), 0, "a/1 a/2 a/3"},                                                    // received nothing
			{streamtest.Join(streamtest.Transaction(100, 110, "a", 1), whole[:2]), 1, "a/1 a/2 a/3"}, // connection lost before the last known row
			{streamtest.Join(whole[:4]), 1, "a/1 a/2 a/3 a/4"},                                       // one more row
			{streamtest.Join(whole, streamtest.Transaction(300, 310, "b", 6)), 4, "a/1 a/2 a/3 a/4 a/5 b/6"},
		} {
			src := &streamtest.Source{Script: step.script, Err: streamtest.ErrLost}
			if err := s.next(t.Context(), src); !errors.Is(err, streamtest.ErrLost) || !src.Closed {
				t.Fatalf("session %d ended with %v", i+1, err)
			}
			if got := prod.records(); got != step.sent {
				t.Errorf("session %d: sent %s, want %s", i+1, got, step.sent)
			}
			if step.acked > 0 {
				prod.ack(step.acked)
			}
		}
		if got := s.tracker.Confirmed(); got != 310 {
			t.Errorf("confirmed %s", got)
		}
		if err := s.stopIdle(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If Postgres resends a transaction with other rows, the relay stops: it can trust neither the Tracker nor the
// server.
func TestOwnershipEndsIfOtherRowsComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, nil, prod, 0)
		_ = s.next(t.Context(), &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1, 2)), Err: streamtest.ErrLost})
		ended := make(chan error, 1)
		go func() {
			ended <- s.next(t.Context(), &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1)), Err: streamtest.ErrLost})
		}()
		synctest.Wait()
		prod.ack(2) // the session drains first
		if err := <-ended; !isA[*checkpoint.RereadError](err) || fault.ExitCode(err) != exit.Continuity {
			t.Errorf("session ended with %v", err)
		}
	})
}

// When another session follows, the relay does not wait for a server that has been silent for too long. It waits for one
// that may still respond, and when it stops.
func TestLostSessionIsLeftAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		expired error
		stopped bool
		took    time.Duration
	}{
		"silent for too long":          {streamtest.ErrLost, false, 0},
		"silent":                       {nil, false, closeTimeout},
		"silent for too long, stopped": {streamtest.ErrLost, true, closeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &streamtest.Source{Silence: test.expired, Silent: true}
				s := newTestSession(t, src, newScriptedProducer(), 0)
				s.watch = func(ctx context.Context) error {
					if test.stopped {
						<-ctx.Done()
						return nil
					}
					return streamtest.ErrLost
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- s.run(ctx) }()
				synctest.Wait()
				if test.stopped {
					stop()
				}
				<-ended
				if took := bubble.Since(began); took != test.took || !src.Closed {
					t.Errorf("took %s, closed %t; want %s", took, src.Closed, test.took)
				}
			})
		})
	}
}

// If the watcher finds an error while a lost session ends, that error is the reason for the end.
func TestSessionIsLostWhileTheCatalogIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t, &streamtest.Source{Err: streamtest.ErrLost}, newScriptedProducer(), 0)
		s.watch = func(ctx context.Context) error {
			<-ctx.Done()
			return fault.ErrSlotTaken
		}
		if err := s.run(t.Context()); !errors.Is(err, fault.ErrSlotTaken) {
			t.Errorf("session ended with %v", err)
		}
	})
}

// Between two sessions the fence is closed, and the writer still handles responses. The next session reads the rows
// again that the writer has not accepted.
func TestOwnershipBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prod := newScriptedProducer()
		prod.auto, prod.full = false, 2
		s := newTestSession(t, nil, prod, 0)
		src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1, 2, 3)), Lost: make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- s.next(t.Context(), src) }()
		synctest.Wait() // the third row waits for the window
		if err := s.fence.checkOpen(); err != nil {
			t.Errorf("in a session the fence is closed: %v", err)
		}
		close(src.Lost)
		if err := <-ended; !errors.Is(err, streamtest.ErrLost) {
			t.Fatalf("session ended with %v", err)
		}
		if err := s.fence.checkOpen(); err == nil {
			t.Error("without a session the fence is open")
		}
		prod.ack(2)
		prod.full = 0
		src = &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1, 2, 3)), Err: streamtest.ErrLost}
		if err := s.next(t.Context(), src); !errors.Is(err, streamtest.ErrLost) || prod.records() != "a/1 a/2 a/3" {
			t.Errorf("session ended with %v, sent %s", err, prod.records())
		}
		prod.ack(1)
		if err := s.stopIdle(t.Context()); err != nil || s.tracker.Confirmed() != 110 {
			t.Errorf("stopped with %v at %s", err, s.tracker.Confirmed())
		}
	})
}

// A fence closes when either clock shows that the process was suspended, and stays closed.
func TestFenceClosesIfTheProcessStoodStill(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		at   time.Time
		open bool
	}{
		"in time":                   {now.Add(tickInterval + maxTickDelay), true},
		"late":                      {now.Add(tickInterval + maxTickDelay + 1), false},
		"the machine was suspended": {now.Round(0).Add(time.Hour), false},
	} {
		c := newClock()
		c.last.Store(&now)
		if err := c.check(tc.at); (err == nil) != tc.open || (err == nil) != (c.tick(tc.at) == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.check(now); (err == nil) != tc.open {
			t.Errorf("%s: afterwards %v", name, err)
		}
	}
}

// If the process was suspended, the session ends, since the next status update is late.
func TestSessionEndsIfTheProcessStoodStill(t *testing.T) {
	for late, want := range map[time.Duration]error{0: streamtest.ErrLost, time.Nanosecond: fault.ErrSuspended} {
		synctest.Test(t, func(t *testing.T) {
			src := &streamtest.Source{Lost: make(chan struct{})}
			o, _ := newTestOwner(t, settings{})
			s := o.startSession(t.Context(), src, slotIdentity{}, 1)
			for range 3 {
				bubble.Sleep(tickInterval + maxTickDelay)
				s.nextReport()
			}
			bubble.Sleep(tickInterval + maxTickDelay + late)
			s.nextReport()
			synctest.Wait()
			close(src.Lost)
			<-s.ended
			if !errors.Is(s.err, want) {
				t.Errorf("%s late: the session has ended with %v, want %v", late, s.err, want)
			}
		})
	}
}

// Keepalives advance the confirmed position while the outbox is idle. They never advance it past an unacknowledged
// record.
func TestPumpConfirmsKeepalivesOfAnIdleOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(streamtest.Script{streamtest.Keepalive(150), streamtest.Begin(200), streamtest.Keepalive(195), streamtest.Insert("a", 1), streamtest.Commit(200, 210), streamtest.Keepalive(400)})}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 100)
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

// A change of a kind that was not published at the start of the session means that somebody changed the
// publication.
func TestPumpStopsAtAnUnpublishedKindOfChange(t *testing.T) {
	b := binary.BigEndian.AppendUint32([]byte{'T'}, 1)
	truncate := streamtest.WALData(binary.BigEndian.AppendUint32(append(b, 0), streamtest.OutboxOID))
	script := streamtest.Join(streamtest.Script{streamtest.Begin(200), truncate, streamtest.Commit(200, 210)})
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t, &streamtest.Source{Script: script}, newScriptedProducer(), 0)
		err := s.run(t.Context())
		if fault.ExitCode(err) != exit.NoDelivery || !strings.Contains(err.Error(), "TRUNCATE of public.outbox") {
			t.Errorf("session ended with %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: script, Err: replication.ErrServerStopping}
		s := newTestSession(t, src, newScriptedProducer(), 0)
		s.published = &catalog.Publication{Insert: true, Truncate: true}
		if err := s.run(t.Context()); !errors.Is(err, replication.ErrServerStopping) || s.tracker.Confirmed() != 210 {
			t.Errorf("session ended with %v at %s", err, s.tracker.Confirmed())
		}
	})
}

// While one record is unacknowledged, the relay sends further records, up to a limit.
func TestPumpBoundsTheTrackersWindow(t *testing.T) {
	const window = pump.MaxWindow
	synctest.Test(t, func(t *testing.T) {
		long := streamtest.Script{streamtest.OutboxRelation()}
		for n := range 2 {
			lsn := pglogrepl.LSN(1000 + 10*n)
			long = append(long, streamtest.Begin(lsn))
			for range window/2 + 5 {
				long = append(long, streamtest.Insert("a", n))
			}
			long = append(long, streamtest.Commit(lsn, lsn+5))
		}
		prod := newScriptedProducer()
		prod.heldSeq = 1
		s := newTestSession(t, &streamtest.Source{Script: long, Err: replication.ErrServerStopping}, prod, 0)
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait()
		if got := len(prod.sent); got != window {
			t.Errorf("%d records sent behind one that is not acknowledged, want %d", got, window)
		}
		prod.ack(1)
		if err := <-ended; !errors.Is(err, replication.ErrServerStopping) {
			t.Error(err)
		}
		if got := len(prod.sent); got != window+10 {
			t.Errorf("%d records sent in the end", got)
		}
	})
}

// The relay measures a confirmed transaction from its commit time, and passes its snapshot to the position writer.
func TestRelayReportsConfirmedTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type measured struct {
			took  time.Duration
			trace string
		}
		var got []measured
		o, _ := newTestOwner(t, settings{delivered: func(took time.Duration, trace string) { got = append(got, measured{took, trace}) }})
		positiontest.Begin(t, o.positions, positiontest.Server(100))
		tracker := positiontest.Start(t, o.positions, positiontest.Server(100))
		committed := time.Now()
		bubble.Sleep(time.Second)
		o.observeConfirmed(checkpoint.Transaction{CommitTime: committed})
		o.observeConfirmed(checkpoint.Transaction{CommitTime: committed, TraceID: [16]byte{0: 0x4b, 15: 0x36}})
		o.observeConfirmed(checkpoint.Transaction{CommitTime: time.Now().Add(time.Hour)}) // committed on a server whose clock is ahead
		o.observeConfirmed(checkpoint.Transaction{})                                      // the commit time is unknown
		want := []measured{{time.Second, ""}, {time.Second, "4b000000000000000000000000000036"}, {0, ""}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
		snapshot := checkpoint.Snapshot{EndLSN: 200, Text: "7:9:8"}
		o.observeConfirmed(checkpoint.Transaction{Snapshot: snapshot})
		o.observeConfirmed(checkpoint.Transaction{CommitTime: committed})
		positiontest.Deliver(tracker, snapshot.EndLSN)
		positiontest.Write(t, o.positions)
		if diff := cmp.Diff([]checkpoint.Snapshot{snapshot}, o.positions.Record.Stored().Snapshots); diff != "" {
			t.Errorf("snapshots of the record (-want +got):\n%s", diff)
		}
	})
}

// A session creates spans for its records. A transaction is measured with the trace id of one of its records.
func TestSessionMakesSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			end    = 510
			aTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
		)
		plain, sampled := streamtest.InsertOf("id", "order", "a", "T", "1", streamtest.Null), streamtest.InsertOf("id", "order", "a", "T", "2", `{"traceparent": "00-`+aTrace+`-00f067aa0ba902b7-01"}`)
		src := &streamtest.Source{Script: streamtest.Script{
			streamtest.WALData(streamtest.RelationOf("id", "aggregatetype", "aggregateid", "type", "payload", "headers")),
			streamtest.Begin(100), streamtest.WALData(plain), streamtest.Commit(100, 110),
			streamtest.Begin(200), streamtest.WALData(plain), streamtest.WALData(sampled), streamtest.WALData(sampled), streamtest.Commit(200, 210),
			streamtest.Begin(300), streamtest.WALData(sampled), streamtest.Commit(300, end),
		}}
		var got []string
		s, _ := newTestSessionWith(t, settings{
			tracer:    tracing.New(tracing.Config{System: "kafka"}, slog.New(slog.DiscardHandler)),
			delivered: func(_ time.Duration, trace string) { got = append(got, trace) },
		}, src, newScriptedProducer(), 0)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil || s.tracker.Confirmed() != end {
			t.Errorf("ended with %v at %s", err, s.tracker.Confirmed())
		}
		if diff := cmp.Diff([]string{"", aTrace, aTrace}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// If a new session would fix the problem, the watcher ends the session at once, even within a transaction that
// exceeds the window. Records in flight stay.
func TestWatcherEndsSessionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1, 2, 3))}
		prod := newScriptedProducer()
		prod.auto, prod.full = false, 2
		s := newTestSession(t, src, prod, 0)
		s.watch = func(context.Context) error {
			synctest.Wait() // the window is full
			return replication.ErrServerStopping
		}
		began := time.Now()
		if err := s.next(t.Context(), src); !errors.Is(err, replication.ErrServerStopping) {
			t.Errorf("session ended with %v", err)
		}
		if took := bubble.Since(began); took > 0 || !src.Closed || s.over {
			t.Errorf("after %s, the stream is closed: %t, the ownership is over: %t", took, src.Closed, s.over)
		}
		if n := s.tracker.Outstanding(); n != 2 {
			t.Errorf("%d records are in flight, want 2", n)
		}
		s.abandon(streamtest.ErrLost)
	})
}

// If the watcher finds a problem, the session ends after it has delivered and confirmed what it has read.
func TestWatcherEndsSessionAfterItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Script: streamtest.Join(streamtest.Transaction(100, 110, "a", 1))}
		prod := newScriptedProducer()
		prod.auto = false
		s := newTestSession(t, src, prod, 0)
		gone := make(chan error)
		s.watch = func(context.Context) error { return <-gone }
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context()) }()
		synctest.Wait() // the row is sent
		gone <- replication.ErrPublication
		synctest.Wait()
		prod.ack(1)
		if err := <-ended; !errors.Is(err, replication.ErrPublication) {
			t.Errorf("session ended with %v", err)
		}
		if src.Confirmed != 110 {
			t.Errorf("reported %s, want 0/6E", src.Confirmed)
		}
	})
}
