package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A row is discarded only when no later relay reads it again: that relay would send it after the rows behind it, if
// the cause was fixed. An acknowledged row is not enough, its position must be stored.
func TestDiscardWaitsForThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		w, tracker := startedWriter(t, store, server(100))
		store.allow = make(chan error)
		stop := runWriter(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		synctest.Wait()
		deliver(tracker, 200)
		r := &releaser{positions: w, tracker: tracker}
		var waited error
		var over bool
		running.Go(func() {
			waited = r.waitRecorded(ctx, parking.Row{LSN: 199})
			over = true
		})
		for _, want := range []bool{false, true} { // the first write is of the position at which the tenure starts
			store.allow <- nil
			bubble.Sleep(time.Second)
			synctest.Wait()
			if over != want || waited != nil {
				t.Errorf("over: %t, %v", over, waited)
			}
			if !want && w.covers(parking.Row{LSN: 199}) {
				t.Error("the row counts as recorded")
			}
		}
		if err := r.waitRecorded(ctx, parking.Row{LSN: 200}); err == nil {
			t.Error("a row that is not acknowledged counts as recorded")
		}
		running.Go(func() { waited = r.waitRecorded(ctx, parking.Row{LSN: 200}) })
		synctest.Wait()
		cancel()
		running.Wait()
		stop()
		if !errors.Is(waited, context.Canceled) {
			t.Error(waited)
		}
	})
}

// storedLetters is a dead-letter topic with one partition.
type storedLetters []*sink.StoredRecord

func (s storedLetters) Spans(context.Context) ([]sink.Span, error) {
	return []sink.Span{{End: int64(len(s))}}, nil
}

func (s storedLetters) Read(_ context.Context, span sink.Span, fn func(*sink.StoredRecord) error) error {
	for _, r := range s[span.Begin:span.End] {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (storedLetters) Close() error { return nil }

// with returns the topic after another dead letter, of a row of a parked key.
func (s storedLetters) with(p encode.Parked, lsn pglogrepl.LSN) storedLetters {
	rec := &sink.Record{Topic: "orders", Partition: sink.AnyPartition, Key: []byte("k")}
	dead := encode.DeadRecord("dead", encode.Origin{Slot: "s", Tx: encode.Tx{CommitLSN: lsn}}, rec, "bad")
	dead = encode.Park(dead, rec.Key, p)
	return append(s, &sink.StoredRecord{Record: *dead, Offset: int64(len(s))})
}

// After a move to another server, its LSNs may be lower than those of the parked rows. No relay reads a row of the
// earlier server again, so discard need not wait for a position after it. That is also so in later tenures, and for rows
// behind the first one of the key.
func TestDiscardAfterAMoveToAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		old := newTestWriter(store, false)
		old.parked.set = parking.NewSet(1)
		before := server(5000)
		begun(t, old, before)
		startTracker(t, old, before)
		var letters storedLetters
		for i := range 2 {
			p, _ := old.parked.set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", uint64(i+1), parking.Row{LSN: pglogrepl.LSN(5100 + i)})
			letters = letters.with(p, pglogrepl.LSN(5100+i))
		}
		deliver(old.tracker, 5200)
		write(t, old)

		for tenure := range 2 {
			now := server(100)
			now.SystemID = "2"
			w := newTestWriter(store, tenure == 0)
			w.parked.set = parking.NewSet(1)
			begun(t, w, now)
			tracker := startTracker(t, w, now)
			deliver(tracker, 200)
			write(t, w)
			parked := w.parked.set.List()[0]
			parked.Bad = parking.Row{LSN: pglogrepl.LSN(5100 + tenure)}
			r := &releaseRun{
				releaser: &releaser{positions: w, tracker: tracker, set: w.parked.set}, parking: parked, reader: letters,
				request: &parking.Request{ID: fmt.Sprint(tenure), Action: parking.Discard, Parking: parked.ID}, next: make(map[int32]int64),
			}
			began := time.Now()
			if err := r.prepare(t.Context()); err != nil || bubble.Since(began) > 0 {
				t.Errorf("tenure %d: %v after %s", tenure, err, bubble.Since(began))
			}
			if n := len(w.parked.set.List()[0].Discarded); n != tenure+1 {
				t.Errorf("tenure %d: %d rows are discarded", tenure, n)
			}
		}
	})
}

// A relay restores parked keys that the position topic has lost, but not after its fence has closed: two later relays may
// have released the keys and removed the set meanwhile.
func TestParkedKeysAreRestoredBehindAnOpenFence(t *testing.T) {
	store := &scriptedStore{}
	w := newTestWriter(store, false)
	w.parked.set = parking.NewSet(1)
	begun(t, w, server(100))
	tracker := startTracker(t, w, server(100))
	w.parked.set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", 1, parking.Row{LSN: 150})
	var lost error
	r := &releaser{positions: w, tracker: tracker, set: w.parked.set, fence: func() error { return lost }}
	for _, lost = range []error{errLost, nil} {
		store.values = nil
		if err := r.handleRequests(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err := w.readStore(t.Context())
		if err != nil || (found.parked.record != nil) != (lost == nil) {
			t.Errorf("fence: %v; restored is %+v, %v", lost, found.parked.record, err)
		}
	}
}
