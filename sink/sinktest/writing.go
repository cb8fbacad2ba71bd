package sinktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

func testOrder(t *testing.T, s Subject) {
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	if limitsOf(s).Slow {
		r.send(destination, 500, 37)
	} else {
		r.send(destination, 5000, 37)
	}
	tombstone := r.record(destination, "null")
	tombstone.Value = nil
	if err := r.trySend(Context(t), tombstone); err != nil {
		t.Fatal(err)
	}
	r.drain()
	r.wantAll(destination, true)
	if st := r.Sink.Stat().Topics[destination]; st.Records != int64(len(r.sent)) {
		t.Errorf("Stat has %d records, want %d", st.Records, len(r.sent))
	}
}

func testFlush(t *testing.T, s Subject) {
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	for range 3 {
		r.send(destination, 1, 1)
		r.awaitAll()
	}
	r.drain()
	r.wantAll(destination, true)
}

// testFlushAnywhere: any goroutine may call Flush, at any time, even after Run has returned.
func testFlushAnywhere(t *testing.T, s Subject) {
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	stop, flushing := make(chan struct{}), new(sync.WaitGroup)
	for range 2 {
		flushing.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					r.Writer.Flush()
				}
			}
		})
	}
	r.send(destination, 500, 5)
	r.drain()
	close(stop)
	flushing.Wait()
	r.Writer.Flush()
	r.wantAll(destination, true)
}

func testWriters(t *testing.T, s Subject) {
	destination := s.Destination(t)
	j := newJournal(t)
	on := open(t, s, window, j)
	var before []sink.Record
	for range 3 {
		r := startOn(t, s, on, j, sink.WriterConfig{})
		r.sent = before
		r.send(destination, 100, 5)
		r.Drain(100)
		r.wantAll(destination, true)
		before = r.sent
	}
}

// testWindow: Send blocks while the window is full. The Writer reports no record as acknowledged before
// the broker has acknowledged it.
func testWindow(t *testing.T, s Subject) {
	const n = 20
	destination := s.Destination(t)
	bytes := 0
	r := start(t, s, n, sink.WriterConfig{MemoryChanged: func(n int) { bytes = n }})
	if want := r.Sink.Stat().WindowBytes; bytes != want || want == 0 {
		t.Errorf("NewWriter reports a window of %d bytes, Stat of %d", bytes, want)
	}
	r.send(destination, 1, 1) // the Writer fetches the metadata with this record
	r.awaitAll()
	hold := s.Hold()
	met, heal := hold.Begin(t)
	r.send(destination, n, 3)
	full := errors.New("the window is full")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, full)
	defer cancel()
	if err := r.trySend(ctx, r.record(destination, "0")); !errors.Is(err, full) {
		t.Errorf("Send with %d records in flight: %v", n, err)
	}
	r.meet(hold, met)
	if st := r.Sink.Stat(); st.InFlightRecords != n || st.WindowRecords != n || st.InFlightBytes == 0 {
		t.Errorf("Stat: %d records of %d in flight, %d bytes", st.InFlightRecords, st.WindowRecords, st.InFlightBytes)
	}
	if n := r.Acked(); n != 1 {
		t.Errorf("%d records were acknowledged before the broker answered", n-1)
	}
	heal()
	r.send(destination, 2*n, 3)
	r.drain()
	r.wantAll(destination, false)
}

// FaultKeys is the number of keys of the records that are sent during a fault, and so that of the requests in flight if a
// request has one record.
const FaultKeys = 7

func testFault(t *testing.T, s Subject, f Fault) {
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	for range f.rounds() {
		r.send(destination, 100, FaultKeys)
		met, heal := f.Begin(t)
		r.send(destination, 300, FaultKeys)
		r.Writer.Flush()
		r.meet(f, met)
		r.send(destination, 100, FaultKeys)
		heal()
	}
	r.drain()
	r.wantAll(destination, false)
	if st := r.Sink.Stat(); f.Breaks && st.Reconnects == 0 {
		t.Errorf("connections broke, and Stat has no reconnect: %+v", st)
	}
}

// testStopped: when a Writer is stopped during a fault, Run returns the number of records without an
// outcome. Every acknowledged record is stored.
func testStopped(t *testing.T, s Subject, f Fault) {
	destination := s.Destination(t)
	r := start(t, s, window, sink.WriterConfig{})
	r.send(destination, 100, FaultKeys)
	r.Writer.Flush()
	met, heal := f.Begin(t)
	r.send(destination, 300, FaultKeys)
	r.Writer.Flush()
	r.meet(f, met)
	cause := errors.New("enough")
	r.Stop(cause)
	err := r.Wait()
	heal()
	if left := len(r.sent) - r.Acked(); left > 0 {
		undelivered, ok := errors.AsType[*sink.UndeliveredError](err)
		if !ok || undelivered.Records != left || undelivered.Sent > left {
			t.Errorf("Run: %+v, want %d records without an outcome", err, left)
		}
	}
	if !errors.Is(err, cause) {
		t.Errorf("Run: %v", err)
	}
	if err := r.trySend(Context(t), r.record(destination, "0")); err == nil {
		t.Error("Send goes on after Run")
	}
	r.wantAcked(t, r.stored(destination))
}

func testCloseSend(t *testing.T, s Subject) {
	destination := s.Destination(t)
	idle := start(t, s, window, sink.WriterConfig{})
	idle.drain()

	r := start(t, s, window, sink.WriterConfig{})
	hold := s.Hold()
	met, heal := hold.Begin(t)
	r.send(destination, 100, 7)
	r.Writer.CloseSend()
	r.meet(hold, met)
	select {
	case <-r.ended:
		t.Fatalf("Run returned with records in flight: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	heal()
	if err := r.Wait(); err != nil || r.Acked() != len(r.sent) {
		t.Errorf("Run: %v, %d of %d records are acknowledged", err, r.Acked(), len(r.sent))
	}
	r.wantAll(destination, false)
}

// A gate is a fence that the test opens and closes.
type gate struct {
	closed atomic.Bool
	asked  atomic.Int64 // number of calls
}

var errGate = errors.New("another writer is active")

func (g *gate) check() error {
	g.asked.Add(1)
	if g.closed.Load() {
		return errGate
	}
	return nil
}

// flushClosed calls Flush and blocks until the Writer has called the fence. The fence must be closed,
// and the Writer must have unsent records.
func (r *rig) flushClosed(g *gate) {
	r.Helper()
	asked := g.asked.Load()
	r.Writer.Flush()
	r.Await("a call of the fence", func() bool { return g.asked.Load() > asked })
}

// startBehindGate starts a Writer with a fence and sends one record. It closes the fence while the
// record is unacknowledged, and then sends more records. heal lets the broker's response arrive.
func startBehindGate(t *testing.T, s Subject, destination string) (r *rig, g *gate, heal func()) {
	t.Helper()
	g = new(gate)
	r = start(t, s, window, sink.WriterConfig{Fence: g.check})
	hold := s.Hold()
	met, heal := hold.Begin(t)
	r.send(destination, 1, 1)
	r.Writer.Flush()
	r.meet(hold, met)
	g.closed.Store(true)
	r.send(destination, 50, 7)
	r.Writer.Flush()
	return r, g, heal
}

func testFence(t *testing.T, s Subject) {
	destination := s.Destination(t)
	r, _, heal := startBehindGate(t, s, destination)
	r.Writer.CloseSend()
	select {
	case <-r.ended:
		t.Fatalf("Run returned with a request on the wire: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	heal()
	err := r.Wait()
	if undelivered, ok := errors.AsType[*sink.UndeliveredError](err); !ok || undelivered.Records != 50 || !errors.Is(err, errGate) {
		t.Errorf("Run: %v", err)
	}
	if r.Acked() != 1 || !r.IsAcked(1) {
		t.Errorf("%d records are acknowledged, want what was in flight", r.Acked())
	}
	if times := r.stored(destination); len(times) != 1 || times[1] != 1 {
		t.Errorf("stored are %v, want what was on the wire", times)
	}

	destination = s.Destination(t)
	r, g, heal := startBehindGate(t, s, destination)
	heal()
	r.AwaitAcked(1)
	g.closed.Store(false)
	r.Writer.CloseSend()
	g.closed.Store(true)
	r.Writer.Flush() // the Writer calls the fence, unless it has sent every record
	left := 0
	if err := r.Wait(); err != nil {
		undelivered, ok := errors.AsType[*sink.UndeliveredError](err)
		if !ok || !errors.Is(err, errGate) {
			t.Fatalf("Run: %v", err)
		}
		left = undelivered.Records
	}
	if left != len(r.sent)-r.Acked() {
		t.Errorf("%d of %d records are acknowledged, Run says that %d are not", r.Acked(), len(r.sent), left)
	}
	r.wantAcked(t, r.stored(destination))
}

func testFenceOpens(t *testing.T, s Subject) {
	destination := s.Destination(t)
	r, g, heal := startBehindGate(t, s, destination)
	heal()
	r.AwaitAcked(1)
	for range 3 {
		acked := r.Acked()
		r.send(destination, 20, 7)
		r.flushClosed(g)
		if stored := len(r.stored(destination)); r.Acked() != acked || stored != acked {
			t.Errorf("%d records are acknowledged, %d were when the fence closed", r.Acked(), acked)
		}
		g.closed.Store(false)
		r.awaitAll()
		g.closed.Store(true)
	}
	g.closed.Store(false)
	r.drain()
	r.wantAll(destination, true)
}

// testOlderWriter: after the first record of the Writer of a newer owner, the broker rejects the records of the Writer of an
// earlier one. All records have
// one key, because the broker may shut out earlier owners from each partition of the destination by itself.
func testOlderWriter(t *testing.T, s Storing) {
	destination, j := s.Destination(t), newJournal(t)
	on := open(t, s, window, j)
	store := s.Store(t)
	switch order := openStore(t, on, store, "a", j).CheckOrder(Context(t)); {
	case errors.Is(order, errors.ErrUnsupported):
		return
	case order != nil:
		t.Fatalf("CheckOrder: %v", order)
	}
	next := func(on sink.Sink) sink.WriterConfig {
		return sink.WriterConfig{Owner: own(t, openStore(t, on, store, "a", j))}
	}
	older := startOn(t, s, on, j, next(on))
	older.send(destination, 20, 1)
	older.awaitAll()

	another := open(t, s, window, j)
	newer := startOn(t, s, another, j, next(another))
	newer.sent = slices.Clone(older.sent)
	newer.send(destination, 20, 1)
	newer.AwaitAcked(20)
	if err := older.trySend(Context(t), older.record(destination, "0")); err != nil {
		t.Fatalf("Send: %v", err)
	}
	older.Writer.Flush()
	if err := older.Wait(); !errors.Is(err, sink.ErrSuperseded) {
		t.Errorf("Run of the older Writer: %v", err)
	}
	newer.send(destination, 20, 1)
	newer.Drain(40)
	newer.wantAll(destination, true)

	third := startOn(t, s, on, j, next(on))
	third.sent = slices.Clone(newer.sent)
	third.send(destination, 20, 1)
	third.Drain(20)
	third.wantAll(destination, true)
}

func testDelivered(t *testing.T, s Subject) {
	destination := s.Destination(t)
	var r *rig
	var mu sync.Mutex
	var delivered []uint64
	examples := make(map[string]int)
	r = start(t, s, window, sink.WriterConfig{
		Delivered: func(d sink.Delivery) string {
			mu.Lock()
			defer mu.Unlock()
			for _, seq := range d.Seqs {
				if r.IsAcked(seq) {
					t.Errorf("record %d was reported before", seq)
				}
			}
			delivered = append(delivered, d.Seqs...)
			if d.Topic != destination || d.Broker == "" {
				t.Errorf("delivery %+v", d)
			}
			return "example"
		},
		Answered: func(took time.Duration, example string) {
			mu.Lock()
			defer mu.Unlock()
			examples[example]++
			if took <= 0 || took > patience {
				t.Errorf("an answer after %s", took)
			}
		},
	})
	r.send(destination, 200, 7)
	r.drain()
	slices.Sort(delivered)
	if len(delivered) != 200 || delivered[0] != 1 || delivered[199] != 200 || len(slices.Compact(delivered)) != 200 {
		t.Errorf("%d records were delivered", len(delivered))
	}
	if examples["example"] == 0 || len(examples) > 2 {
		t.Errorf("examples %v", examples)
	}
}
