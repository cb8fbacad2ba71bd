package sinktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// RunTransactions runs the suite for a Subject whose position stores are a [sink.TransactionalStore]. Its Read returns
// the records that a consumer sees who reads only committed ones.
func RunTransactions(t *testing.T, s Subject) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"records appear with their value", testCommit},
		{"a transaction is larger than the window", testLargeTransaction},
		{"a value without records", testValueOnly},
		{"the next identity ends an open transaction", testZombie},
		{"a rejected record has a substitute in its transaction", testTransactionSubstitute},
		{"a rejected record ends the transaction", testTransactionRejected},
		{"a closed fence holds a transaction", testTransactionFence},
		{"records without Commit", testUncommitted},
		{"writers without transactions come before and after", testSwitch},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
	for _, f := range append(s.Faults(), s.Hold()) {
		t.Run("transactions/"+f.Name, func(t *testing.T) { testTransactionFault(t, s, f) })
		t.Run("stopped in a transaction/"+f.Name, func(t *testing.T) { testTransactionStopped(t, s, f) })
	}
}

// A txnRig is a rig with a transactional Writer. A value is the Seq of the last record of its transaction.
type txnRig struct {
	*rig

	store       sink.TransactionalStore
	writer      sink.TransactionalWriter // the one of the Session
	destination string
	committed   atomic.Uint64 // the last value whose transaction is reported as committed
}

// openTransactions returns a txnRig that has no Writer yet.
func openTransactions(t *testing.T, s Subject, window int, store, destination string) *txnRig {
	t.Helper()
	j := newJournal(t)
	on := open(t, s, window, j)
	transactional, ok := openStore(t, on, store, "relay", j).(sink.TransactionalStore)
	if !ok {
		t.Fatal("the store has no transactions")
	}
	return &txnRig{
		rig:   &rig{T: t, subject: s, Session: &Session{Sink: on, Journal: j}},
		store: transactional, destination: destination,
	}
}

func startTransactions(t *testing.T, s Subject, window int, cfg sink.WriterConfig) *txnRig {
	t.Helper()
	r := openTransactions(t, s, window, s.Store(t), s.Destination(t))
	r.next(cfg)
	return r
}

// next starts a Writer with the next identity. It continues after the newest value: the records after it count as never
// sent.
func (r *txnRig) next(cfg sink.WriterConfig) {
	r.Helper()
	id, err := r.store.NextIdentity(Context(r.T), cfg.Identity)
	if err != nil {
		r.Fatalf("NextIdentity: %v", err)
	}
	cfg.Identity = id
	r.sent = r.sent[:r.value()]
	r.writer = r.store.NewTransactionalWriter(writer, cfg)
	r.Session = StartWriter(r.T, r.Sink, r.writer, r.Journal)
}

// value returns the newest value.
func (r *txnRig) value() uint64 {
	r.Helper()
	values, err := r.store.Read(Context(r.T))
	if err != nil {
		r.Fatalf("Read: %v", err)
	}
	if len(values) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(string(values[len(values)-1].Value), secret), 10, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// wantValue waits until Read returns n: a broker may take a moment after a commit.
func (r *txnRig) wantValue(n uint64) {
	r.Helper()
	if !r.settles(func() bool { return r.value() == n }) {
		r.Errorf("the value is %d, want %d", r.value(), n)
	}
}

func (r *txnRig) commit() {
	last := uint64(len(r.sent))
	session := r.Session
	r.writer.Commit(fmt.Append(nil, secret, last), func() {
		if last > 0 && !session.IsAcked(last) {
			r.Errorf("the value %d is committed before record %d has an outcome", last, last)
		}
		r.committed.Store(last)
	})
}

// sendGroup sends n records and commits them.
func (r *txnRig) sendGroup(n int) {
	r.Helper()
	r.send(r.destination, n, 7)
	r.commit()
}

// awaitCommitted waits until the records sent are committed.
func (r *txnRig) awaitCommitted() {
	r.Helper()
	r.Await("the commit", func() bool { return r.committed.Load() == uint64(len(r.sent)) })
}

func pause(d time.Duration) { <-time.After(d) }

// settles reports whether cond becomes true before the test loses its patience. Run may have returned.
func (r *txnRig) settles(cond func() bool) bool {
	r.Helper()
	for ctx := Context(r.T); ctx.Err() == nil; pause(10 * time.Millisecond) {
		if cond() {
			return true
		}
	}
	return false
}

// wantVisible waits until n records are visible, each once, and checks that no further one is.
func (r *txnRig) wantVisible(n int) {
	r.Helper()
	r.settles(func() bool { return len(r.stored(r.destination)) >= n })
	times := r.stored(r.destination)
	for seq, n := range times {
		if n != 1 {
			r.Errorf("record %d is visible %d times", seq, n)
		}
	}
	if len(times) != n {
		r.Errorf("%d records are visible, want %d", len(times), n)
	}
}

func testCommit(t *testing.T, s Subject) {
	r := startTransactions(t, s, window, sink.WriterConfig{})
	r.send(r.destination, 100, 7)
	r.Writer.Flush()
	r.wantVisible(0)
	if n := r.Acked(); n > 0 || r.value() != 0 {
		t.Errorf("%d records have an outcome before Commit, the value is %d", n, r.value())
	}
	r.commit()
	r.awaitCommitted()
	r.wantVisible(100)
	for range 20 { // without waiting for each other
		r.sendGroup(30)
	}
	r.awaitCommitted()
	r.drain()
	r.wantVisible(700)
	r.wantValue(700)
	if st := r.Sink.Stat(); len(st.Topics) != 1 || st.Topics[r.destination].Records != 700 {
		t.Errorf("Stat has %+v", st.Topics)
	}
}

func testLargeTransaction(t *testing.T, s Subject) {
	r := startTransactions(t, s, 20, sink.WriterConfig{})
	r.sendGroup(10)
	r.send(r.destination, 300, 7)
	r.awaitValue(10)
	r.wantVisible(10)
	r.commit()
	r.drain()
	r.wantVisible(310)
}

func (r *txnRig) awaitValue(n uint64) {
	r.Helper()
	r.Await("the commit", func() bool { return r.committed.Load() >= n })
}

func testValueOnly(t *testing.T, s Subject) {
	r := startTransactions(t, s, window, sink.WriterConfig{})
	r.sendGroup(5)
	committed := make(chan struct{})
	r.writer.Commit([]byte(secret+"3"), func() { close(committed) })
	select {
	case <-committed:
	case <-Context(t).Done():
		t.Fatalf("the value is not committed\n%s", r.Journal)
	}
	r.drain()
	r.wantValue(3)
}

// testZombie: a Writer that is still running does not write any more when NextIdentity has returned.
func testZombie(t *testing.T, s Subject) {
	const opened = 20 // so that a small window opens its transaction
	old := startTransactions(t, s, opened, sink.WriterConfig{})
	old.sendGroup(10)
	old.awaitCommitted()
	old.send(old.destination, 3*opened, 7)
	young := openTransactions(t, s, window, s.Store(t), old.destination)
	young.store, young.sent = old.store, old.sent
	young.next(sink.WriterConfig{})
	if len(young.sent) != 10 {
		t.Fatalf("the younger writer continues after record %d", len(young.sent))
	}
	young.sendGroup(50)
	young.awaitCommitted()
	old.commit()
	if err := journaled(old.Journal, old.Wait()); !errors.Is(err, sink.ErrAborted) {
		t.Errorf("Run of the older Writer: %v", err)
	}
	young.sendGroup(50)
	young.drainCommitted()
	young.wantVisible(110)
}

// drainCommitted waits until what is committed is reported, and ends the Writer.
func (r *txnRig) drainCommitted() {
	r.Helper()
	r.awaitCommitted()
	r.Writer.CloseSend()
	if err := r.Wait(); err != nil {
		r.Errorf("Run: %v\n%s", err, r.Journal)
	}
}

func testTransactionSubstitute(t *testing.T, s Subject) {
	var instead atomic.Int64
	r := startTransactions(t, s, window, sink.WriterConfig{Substitute: func(rec *sink.Record, _ *sink.RecordError) *sink.Record {
		instead.Add(1)
		rec.Value = []byte(secret + " instead")
		rec.Headers = nil
		return rec
	}})
	letters := s.Destination(t)
	for range 5 {
		r.send(r.destination, 20, 7)
		rec := r.record(letters, "bad")
		s.Reject(rec)
		if err := r.trySend(Context(t), rec); err != nil {
			t.Fatal(err)
		}
		r.sendGroup(20)
	}
	r.drain()
	r.wantVisible(200)
	if n := len(s.Read(t, letters)); n != 5 || instead.Load() != 5 {
		t.Errorf("%d of %d substitutes are visible, want 5", n, instead.Load())
	}
}

func testTransactionRejected(t *testing.T, s Subject) {
	r := startTransactions(t, s, window, sink.WriterConfig{})
	r.sendGroup(20)
	r.awaitCommitted()
	r.send(r.destination, 20, 7)
	rec := r.record(r.destination, "bad")
	s.Reject(rec)
	if err := r.trySend(Context(t), rec); err != nil {
		t.Fatal(err)
	}
	r.commit()
	err := journaled(r.Journal, r.Wait())
	if rejected, ok := errors.AsType[*sink.RecordError](err); !ok || rejected.Seq != 41 || r.Failed()[41] == nil || r.Acked() != 20 {
		t.Errorf("Run: %v; failed are %v, %d are acknowledged", err, r.Failed(), r.Acked())
	}
	r.next(sink.WriterConfig{})
	r.sendGroup(20)
	r.drainCommitted()
	r.wantVisible(40)
}

func testTransactionFence(t *testing.T, s Subject) {
	var closed atomic.Bool
	errClosed := errors.New("closed")
	r := startTransactions(t, s, window, sink.WriterConfig{Fence: func() error {
		if closed.Load() {
			return errClosed
		}
		return nil
	}})
	r.sendGroup(20)
	r.awaitCommitted()
	closed.Store(true)
	r.sendGroup(20)
	pause(100 * time.Millisecond)
	r.wantVisible(20)
	closed.Store(false)
	r.Writer.Flush()
	r.awaitCommitted()
	r.wantVisible(40)
	closed.Store(true)
	r.sendGroup(20)
	r.Writer.CloseSend()
	err := journaled(r.Journal, r.Wait())
	if _, ok := errors.AsType[*sink.UndeliveredError](err); !ok || !errors.Is(err, errClosed) {
		t.Errorf("Run: %v", err)
	}
	r.wantVisible(40)
}

func testUncommitted(t *testing.T, s Subject) {
	r := startTransactions(t, s, window, sink.WriterConfig{})
	r.sendGroup(20)
	r.send(r.destination, 5, 7)
	r.Writer.CloseSend()
	err := journaled(r.Journal, r.Wait())
	if left, ok := errors.AsType[*sink.UndeliveredError](err); !ok || left.Records != 5 {
		t.Errorf("Run: %v, want 5 records without an outcome", err)
	}
	r.wantVisible(20)
}

// testSwitch: the values and the transactions of writers of both kinds follow each other.
func testSwitch(t *testing.T, s Subject) {
	store := s.Store(t)
	r := openTransactions(t, s, window, store, s.Destination(t))
	writePosition(t, r.store, "0")
	r.next(sink.WriterConfig{})
	r.sendGroup(10)
	r.awaitCommitted()
	r.Stop(errors.New("stopped"))
	_ = r.Wait()
	writePosition(t, r.store, "7")
	if got := r.value(); got != 7 {
		t.Errorf("the value is %d, want that of the writer without transactions", got)
	}
	writePosition(t, r.store, "10")
	r.next(sink.WriterConfig{})
	r.sendGroup(10)
	r.drainCommitted()
	r.wantVisible(20)
}

// testTransactionFault: the Writer itself recovers from every fault.
func testTransactionFault(t *testing.T, s Subject, f Fault) {
	r := startTransactions(t, s, window, sink.WriterConfig{})
	for range 3 {
		r.sendGroup(100)
		r.send(r.destination, 150, 7)
		met, heal := f.Begin(t)
		r.sendGroup(150)
		r.meet(f, met)
		r.sendGroup(100)
		heal()
	}
	r.drain()
	r.wantVisible(1500)
	r.wantValue(1500)
}

// testTransactionStopped: Writers are stopped at any moment during a fault. When each continues at the value that the
// last one has left, every record is visible once.
func testTransactionStopped(t *testing.T, s Subject, f Fault) {
	const rounds = 12
	r := startTransactions(t, s, window, sink.WriterConfig{})
	rng := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		r.sendGroup(30)
		met, heal := f.Begin(t)
		r.sendGroup(40)
		r.send(r.destination, 10, 7)
		pause, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(8000))*time.Microsecond)
		select {
		case <-met:
		case <-pause.Done():
		}
		cancel()
		r.Stop(errors.New("stopped"))
		if err := r.Wait(); errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrAborted) {
			t.Fatalf("Run: %v\n%s", err, r.Journal)
		}
		heal()
		r.next(sink.WriterConfig{})
	}
	r.sendGroup(1)
	r.drainCommitted()
	r.wantVisible(len(r.sent))
}
