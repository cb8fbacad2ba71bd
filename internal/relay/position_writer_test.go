package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A scriptedStore is a position store whose writes can wait for the test.
type scriptedStore struct {
	mu     sync.Mutex
	values []sink.StoredValue
	writes int
	owner  *scriptedOwner
	onOwn  func()     // called before there is a new owner; nil: nothing
	allow  chan error // a write waits for a value and returns it; nil: no waiting
	silent bool       // Read blocks until its context ends
	refuse error      // the error that Read returns, unless nil
}

func (s *scriptedStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	if s.silent {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	return slices.Clone(s.values), nil
}

func (s *scriptedStore) Own(context.Context) (sink.Owner, error) {
	if s.onOwn != nil {
		s.onOwn()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = &scriptedOwner{s}
	return s.owner, nil
}

// Post stores a value.
func (s *scriptedStore) Post(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = slices.DeleteFunc(s.values, func(v sink.StoredValue) bool { return v.Key == key })
	if value != nil {
		s.values = append(s.values, sink.StoredValue{Key: key, Value: value})
	}
	s.writes++
	return nil
}

// A scriptedOwner is an owner of a scriptedStore.
type scriptedOwner struct{ store *scriptedStore }

func (o *scriptedOwner) Write(ctx context.Context, key string, value []byte) error {
	if o.store.allow != nil {
		select {
		case err := <-o.store.allow:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	o.store.mu.Lock()
	newest := o.store.owner
	o.store.mu.Unlock()
	if newest != o {
		return sink.ErrSuperseded
	}
	return o.store.Post(ctx, key, value)
}

// position returns the newest position record.
func (s *scriptedStore) position(t *testing.T) checkpoint.Position {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var p checkpoint.Position
	for _, v := range s.values {
		if v.Key == sink.PositionKey {
			if err := json.Unmarshal(v.Value, &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p
}

func server(confirmed pglogrepl.LSN) checkpoint.Server {
	return checkpoint.Server{SystemID: "1", Timeline: 1, Slot: "s", Confirmed: confirmed, WALEnd: 10_000}
}

// deliver adds a delivered transaction that ends at end to t.
func deliver(t *checkpoint.Tracker, end pglogrepl.LSN) {
	if err := errors.Join(t.Begin(end-1, time.Time{}), t.Commit(end)); err != nil {
		panic(err)
	}
}

func newTestWriter(store sink.PositionStore, acceptGap bool) *positionWriter {
	return newPositionWriter(store, acceptGap, slog.New(slog.DiscardHandler))
}

// begun begins a tenure of w on s.
func begun(t *testing.T, w *positionWriter, s checkpoint.Server) {
	t.Helper()
	if err := w.beginTenure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// startedWriter returns the writer of another process that has begun a tenure on s.
func startedWriter(t *testing.T, store sink.PositionStore, s checkpoint.Server) (*positionWriter, *checkpoint.Tracker) {
	t.Helper()
	w := newTestWriter(store, false)
	begun(t, w, s)
	return w, startTracker(t, w, s)
}

// startTracker starts a tenure.
func startTracker(t *testing.T, w *positionWriter, s checkpoint.Server) *checkpoint.Tracker {
	t.Helper()
	start, err := w.chooseStart(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	tracker := checkpoint.New(start, nil)
	w.startTenure(tracker)
	return tracker
}

// write makes w write the confirmed position.
func write(t *testing.T, w *positionWriter) {
	t.Helper()
	if _, err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runWriter runs w. stop ends that and waits for it.
func runWriter(t *testing.T, w *positionWriter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup // waited for by stop
	running.Go(func() {
		if err := w.run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// The relay confirms a position to Postgres only after Kafka has acknowledged the position record. A call of
// confirmedPosition triggers the next write.
func TestPositionWriterConfirmsOnlyWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		w, tracker := startedWriter(t, store, server(100))
		store.allow = make(chan error)
		stop := runWriter(t, w)
		want := func(lsn pglogrepl.LSN) {
			t.Helper()
			synctest.Wait()
			if got := w.confirmedPosition(); got != lsn {
				t.Errorf("confirmed to Postgres is %s, want %s", got, lsn)
			}
		}
		synctest.Wait()
		deliver(tracker, 200)
		want(0) // not even the slot's own position is recorded
		store.allow <- nil
		want(100) // triggers a write
		store.allow <- nil
		want(200)
		if p := store.position(t); p.EndLSN != 200 || p.SystemID != "1" || p.Slot != "s" || p.Timeline != 1 {
			t.Errorf("recorded %+v", p)
		}
		deliver(tracker, 300)
		deliver(tracker, 400)
		synctest.Wait()
		if store.writes != 3 { // the first one begins the tenure
			t.Errorf("%d writes without a call of confirmedPosition", store.writes)
		}
		want(200) // triggers a write
		store.allow <- nil
		want(400)
		stop()
	})
}

func TestPositionWriterWritesAPositionOnce(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	write(t, w)
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if wrote, err := w.writePosition(t.Context()); err != nil || wrote || store.writes != 2 { // the first one begins the tenure
		t.Errorf("%d records of one position, %v", store.writes-1, err)
	}
}

// If the store fails, the session ends. A blocked write ends with its context.
func TestPositionWriterFailsWithItsStore(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	store.allow = make(chan error, 1)
	deliver(tracker, 200)
	store.allow <- errors.New("refused")
	if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "record the position 0/C8: refused") {
		t.Errorf("run returns %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if _, err := w.writePosition(ctx); !errors.Is(err, over) {
		t.Errorf("record returns %v", err)
	}
	if got := w.confirmedPosition(); got != 0 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
}

// When a standby gets the slot, it starts at the last position that the previous relay recorded. If the slot is
// ahead of that position, there is a gap.
func TestPositionWriterContinuesTheRecordOfAnotherProcess(t *testing.T) {
	store := &scriptedStore{}
	active, tracker := startedWriter(t, store, server(100))
	write(t, active)
	deliver(tracker, 500)
	write(t, active)
	advanced := store.position(t).AdvancedAt
	standby := newTestWriter(store, false)
	begun(t, standby, server(400))
	if p := standby.stored; advanced.IsZero() || !p.AdvancedAt.Equal(advanced) || !p.WrittenAt.After(advanced) {
		t.Errorf("advanced at %s, and according to the standby at %s; written at %s", advanced, p.AdvancedAt, p.WrittenAt)
	}
	start, err := standby.chooseStart(t.Context(), server(400))
	if start != 500 || err != nil {
		t.Errorf("the standby starts at %s, %v", start, err)
	}
	_, err = standby.chooseStart(t.Context(), server(501))
	if _, isGap := errors.AsType[*checkpoint.GapError](err); !isGap || ExitCode(err) != ExitContinuity {
		t.Errorf("a slot ahead of the record: %v", err)
	}
}

// When another process has become the owner, the first one cannot write any more. It finds out before it continues.
func TestPositionWriterIsShutOut(t *testing.T) {
	store := &scriptedStore{}
	first, before := startedWriter(t, store, server(100))
	write(t, first)
	if err := first.proveOwner(t.Context()); err != nil {
		t.Errorf("alone: %v", err)
	}
	second, after := startedWriter(t, store, server(100))
	if p := store.position(t); p.Tenure != 2 || p.EndLSN != 100 {
		t.Errorf("the second tenure begins with %+v", p)
	}
	deliver(after, 300)
	write(t, second)
	deliver(before, 200)
	if _, err := first.writePosition(t.Context()); !errors.Is(err, sink.ErrSuperseded) || ExitCode(err) != ExitSlotInUse {
		t.Errorf("a late write of the first: %v", err)
	}
	if err := first.proveOwner(t.Context()); !errors.Is(err, sink.ErrSuperseded) {
		t.Errorf("the first may continue: %v", err)
	}
	if err := second.proveOwner(t.Context()); err != nil || store.position(t).EndLSN != 300 || second.canContinue(server(100)) != nil || !as[*checkpoint.GapError](second.canContinue(server(301))) {
		t.Errorf("the second has %+v, %v", store.position(t), err)
	}
	third, _ := startedWriter(t, store, server(100))
	if p := third.stored; p.Tenure != 3 || p.EndLSN != 300 {
		t.Errorf("the third tenure begins with %+v", p)
	}
}

// The previous owner may write until there is a new one. A tenure begins with the last record that it has written.
func TestPositionWriterReadsWhatIsWrittenLast(t *testing.T) {
	store := &scriptedStore{}
	first, tracker := startedWriter(t, store, server(100))
	write(t, first)
	second := newTestWriter(store, false)
	store.onOwn = func() {
		deliver(tracker, 200)
		write(t, first)
	}
	begun(t, second, server(100))
	if p := second.stored; p.EndLSN != 200 || p.Tenure != 2 {
		t.Errorf("the tenure begins with %+v", p)
	}
}

// A process proves that it is the owner while it writes a position: the record does not go back.
func TestPositionWriterProvesWhileItWrites(t *testing.T) {
	for _, provesFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &scriptedStore{}
			w, tracker := startedWriter(t, store, server(100))
			write(t, w)
			store.allow = make(chan error)
			deliver(tracker, 200)
			both := []func(){
				func() { write(t, w) },
				func() {
					if err := w.proveOwner(t.Context()); err != nil {
						t.Error(err)
					}
				},
			}
			if provesFirst {
				slices.Reverse(both)
			}
			var running sync.WaitGroup
			for _, run := range both {
				running.Go(run)
				synctest.Wait()
			}
			store.allow <- nil
			store.allow <- nil
			running.Wait()
			if got := store.position(t).EndLSN; got != 200 || w.confirmedPosition() != 200 {
				t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.confirmedPosition())
			}
		})
	}
}

// If a relay is connected to the wrong server, it reports a gap before it shuts out another relay.
func TestPositionWriterRefusesAWrongServer(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	write(t, w)
	other, older := server(200), server(200)
	other.SystemID, older.WALEnd = "2", 150
	for name, tc := range map[string]struct {
		server  checkpoint.Server
		refused bool
	}{
		"as it was":      {server(200), false},
		"behind":         {server(100), false},
		"ahead":          {server(300), true},
		"another system": {other, true},
		"an older copy":  {older, true},
	} {
		for _, acceptGap := range []bool{false, true} {
			next := newTestWriter(store, acceptGap)
			found, err := next.readStore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := next.checkGap(found, tc.server); as[*checkpoint.GapError](err) != (tc.refused && !acceptGap) {
				t.Errorf("%s, accept gap %t: %v", name, acceptGap, err)
			}
		}
	}
}

// If the store loses its values while the process runs, the process writes them again.
func TestPositionWriterOutlivesItsStore(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	write(t, w)
	store.values = nil
	begun(t, w, server(200))
	if p := store.position(t); p.EndLSN != 200 || p.Tenure != 2 {
		t.Errorf("the tenure begins with %+v", p)
	}
}

// The position record describes a partially delivered transaction. The next process continues within it.
func TestPositionWriterRecordsTheOpenTransaction(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	if err := tracker.Begin(300, time.Time{}); err != nil {
		t.Fatal(err)
	}
	readRows := func(tracker *checkpoint.Tracker, n int) (first checkpoint.Seq) {
		for range n {
			seq, err := tracker.Next([]byte("row"))
			if err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = seq
			}
		}
		return first
	}
	readRows(tracker, 1000)
	for seq := checkpoint.Seq(1); seq <= 300; seq++ {
		if err := tracker.Ack(seq); err != nil {
			t.Fatal(err)
		}
	}
	write(t, w)
	if p := store.position(t); p.EndLSN != 100 || p.Open.CommitLSN != 300 || p.Open.Rows != 256 {
		t.Fatalf("the record is %+v", p)
	}
	if wrote, err := w.writePosition(t.Context()); wrote || err != nil {
		t.Errorf("written again: %t, %v", wrote, err)
	}
	if got := w.resumable(300); got != 256 {
		t.Errorf("%d rows are resumable", got)
	}

	next, tracker := startedWriter(t, store, server(100))
	if err := tracker.Begin(300, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if first := readRows(tracker, 256); first != 0 {
		t.Errorf("a row that was delivered is numbered %d", first)
	}
	if first := readRows(tracker, 44); first != 1 {
		t.Errorf("the next row is numbered %d", first)
	}
	deliverAll(t, tracker, 44, 310)
	write(t, next)
	if p := store.position(t); p.EndLSN != 310 || p.Open.Rows != 0 {
		t.Errorf("the record is %+v", p)
	}
}

// deliverAll acknowledges n records and commits their transaction.
func deliverAll(t *testing.T, tracker *checkpoint.Tracker, n int, end pglogrepl.LSN) {
	t.Helper()
	for seq := range n {
		if err := tracker.Ack(checkpoint.Seq(seq + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracker.Commit(end); err != nil {
		t.Fatal(err)
	}
}

func marshal(t *testing.T, p checkpoint.Position) []byte {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A snapshot becomes part of the position record when its transaction is confirmed.
func TestPositionWriterKeepsDeliveredSnapshots(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	snapshot := func(lsn pglogrepl.LSN) {
		deliver(tracker, lsn)
		w.keepSnapshot(checkpoint.Snapshot{EndLSN: lsn, Text: "740:745:741"})
	}
	snapshot(200)
	snapshot(300)
	deliver(tracker, 350)
	write(t, w)
	if p := store.position(t); len(p.Snapshots) != 1 || p.Snapshots[0].EndLSN != 300 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
	snapshot(400)
	write(t, w)
	if p := store.position(t); len(p.Snapshots) != 2 || p.Snapshots[0].EndLSN != 400 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
}

// A position record that the relay cannot read is an error. It does not count as missing.
func TestPositionWriterRejectsARecordItCannotRead(t *testing.T) {
	for _, key := range []string{sink.PositionKey, sink.ParkedKey, "8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"} {
		store := &scriptedStore{values: []sink.StoredValue{{Key: key, Value: []byte(`{"version": 9}`)}}}
		_, err := newTestWriter(store, false).readStore(t.Context())
		if ExitCode(err) != ExitContinuity || Advice(err) == "" {
			t.Errorf("readStore returns %v", err)
		}
	}
}

// The relay ignores a value that no relay has written. It logs one warning.
func TestPositionWriterIgnoresForgedValues(t *testing.T) {
	const request = "8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"
	for name, forged := range map[string]sink.StoredValue{
		"text":                    {Key: sink.PositionKey, Value: []byte("anything")},
		"no version":              {Key: sink.PositionKey, Value: []byte(`{"system_id": "1", "slot": "s", "end_lsn": "0/500"}`)},
		"no system":               {Key: sink.PositionKey, Value: []byte(`{"version": 1, "system_id": "x", "slot": "s", "end_lsn": "0/500"}`)},
		"no LSN":                  {Key: sink.PositionKey, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "far"}`)},
		"largest tenure":          {Key: sink.PositionKey, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500", "tenure": 9223372036854775807}`)},
		"no value of any use":     {Key: sink.PositionKey, Value: []byte(`[]`)},
		"position as a request":   {Key: request, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500"}`)},
		"position as parked keys": {Key: sink.ParkedKey, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500"}`)},
	} {
		var log strings.Builder
		forged.Place = "topic p, offset 7"
		store := &scriptedStore{values: []sink.StoredValue{forged}}
		reader := newPositionWriter(store, false, slog.New(slog.NewTextHandler(&log, nil)))
		for range 2 {
			found, err := reader.readStore(t.Context())
			if err != nil || found.position != nil || found.parked.record != nil || len(found.parked.requests) > 0 {
				t.Errorf("%s: found %+v, %v", name, found, err)
			}
		}
		if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "topic p, offset 7") || strings.Contains(log.String(), "nil") {
			t.Errorf("%s: logged %q", name, log.String())
		}
	}
}

// Without a store the position record is in memory. A different system identifier is a gap. If the slot is ahead,
// another instance may have used it: the relay logs an error and starts.
func TestPositionWriterWithoutAStore(t *testing.T) {
	var log strings.Builder
	w := newPositionWriter(nil, false, slog.New(slog.NewTextHandler(&log, nil)))
	begun(t, w, server(100))
	tracker := startTracker(t, w, server(100))
	write(t, w)
	deliver(tracker, 200)
	write(t, w)
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if err := w.proveOwner(t.Context()); err != nil || w.canContinue(server(150)) != nil || !as[*checkpoint.GapError](w.canContinue(server(300))) {
		t.Errorf("it cannot continue: %v", err)
	}
	if start, err := w.chooseStart(t.Context(), server(300)); start != 0 || err != nil || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("a slot that is ahead: starts at %s, %v, logged %s", start, err, log.String())
	}
	other := server(100)
	other.SystemID = "2"
	if _, err := w.chooseStart(t.Context(), other); ExitCode(err) != ExitContinuity {
		t.Errorf("another system: %v", err)
	}
}

// A write that the relay has given up may still be stored. The relay goes on.
func TestPositionWriterGoesOnAfterAWriteThatWasGivenUp(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	write(t, w)
	store.allow = make(chan error)
	deliver(tracker, 200)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.writePosition(ctx); err == nil {
		t.Fatal("the write did not fail")
	}
	given := w.stored
	given.EndLSN = 200
	store.values[0].Value = marshal(t, given) // stored although the write failed
	store.allow = nil
	if err := errors.Join(w.proveOwner(t.Context()), w.canContinue(server(100))); err != nil {
		t.Errorf("it cannot continue: %v", err)
	}
	write(t, w)
	if got := store.position(t).EndLSN; got != 200 || w.confirmedPosition() != 200 {
		t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.confirmedPosition())
	}
}

// A tenure that starts at the recorded position keeps the record's term. If it starts elsewhere or on another
// timeline, it uses a new term.
func TestPositionWriterStartsANewTerm(t *testing.T) {
	store := &scriptedStore{}
	promoted := promoted(10_000, 100)
	for n, tc := range []struct {
		server checkpoint.Server
		want   int64
	}{{server(100), 1}, {server(100), 1}, {promoted, 2}, {promoted, 2}} {
		w, tracker := startedWriter(t, store, tc.server)
		deliver(tracker, pglogrepl.LSN(200+100*n))
		write(t, w)
		if got := store.position(t).Term; got != tc.want {
			t.Errorf("tenure %d writes term %d, want %d", n+1, got, tc.want)
		}
	}
}

// The position record says that the initial copy is not delivered yet, from before the slot exists.
func TestPositionWriterKeepsAPendingCopy(t *testing.T) {
	store := &scriptedStore{}
	first := newTestWriter(store, false)
	if err := errors.Join(first.requireNoRecord(t.Context(), "s"), first.announceCopy(t.Context(), "1", "s")); err != nil {
		t.Fatal(err)
	}
	if err := first.requireNoRecord(t.Context(), "s"); err != nil { // the process ended before it created the slot
		t.Errorf("the slot cannot be created: %v", err)
	}
	for range 2 { // the second one finds an existing slot
		w, tracker := startedWriter(t, store, server(100))
		if !w.copyPending() {
			t.Error("no copy is pending")
		}
		write(t, w)
		if p := store.position(t); !p.Copying || p.EndLSN != 100 {
			t.Errorf("recorded is %+v", p)
		}
		if tracker.Confirmed() > 100 || w.confirmedPosition() > 100 {
			t.Errorf("confirmed %s, confirmed to Postgres is %s", tracker.Confirmed(), w.confirmedPosition())
		}
	}
	w, tracker := startedWriter(t, store, server(100))
	w.markCopied()
	write(t, w) // although the position is the same
	if p := store.position(t); p.Copying || p.EndLSN != 100 {
		t.Errorf("recorded is %+v", p)
	}
	deliver(tracker, 200)
	write(t, w)
	if again, _ := startedWriter(t, store, server(100)); again.copyPending() {
		t.Error("the copy is pending again")
	}
}

// When an operator accepts a gap, the relay skips the rest of the initial copy. A newly created slot has no gap.
func TestPositionWriterGivesUpACopyWithAnAcceptedGap(t *testing.T) {
	store := &scriptedStore{}
	first := newTestWriter(store, true)
	if err := errors.Join(first.requireNoRecord(t.Context(), "s"), first.announceCopy(t.Context(), "1", "s")); err != nil {
		t.Fatal(err)
	}
	begun(t, first, server(100))
	if _, err := first.chooseStart(t.Context(), server(100)); err != nil || !first.copyPending() {
		t.Errorf("the copy of a new slot is skipped: %v", err)
	}
	w := newTestWriter(store, true)
	begun(t, w, server(100))
	if _, err := w.chooseStart(t.Context(), server(100)); err != nil || w.copyPending() {
		t.Errorf("the copy is not skipped: %v", err)
	}
}

// A standby that gets the slot and crashes leaves no gap, wherever it crashes. The next relay does not start before
// the position that is confirmed to Postgres. That also holds if the previous relay writes late.
func TestCrashOfAStandbyLeavesNoGap(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, recorded := range []bool{false, true} {
			for stage := range 4 {
				t.Run(fmt.Sprintf("stage %d, recorded %t, late %t", stage, recorded, late), func(t *testing.T) {
					store, told := &scriptedStore{}, pglogrepl.LSN(50)
					first, tracker := startedWriter(t, store, server(told))
					if recorded {
						deliver(tracker, 110)
						write(t, first)
						told = first.confirmedPosition()
					}
					standby := newTestWriter(store, false)
					begun(t, standby, server(told))
					if stage >= 1 {
						deliver(startTracker(t, standby, server(told)), 210)
					}
					if late {
						deliver(tracker, 160)
						if _, err := first.writePosition(t.Context()); !errors.Is(err, sink.ErrSuperseded) {
							t.Errorf("the late write of the previous relay: %v", err)
						}
					}
					if stage >= 2 {
						write(t, standby)
					}
					if stage >= 3 {
						told = max(told, standby.confirmedPosition())
					}
					third := newTestWriter(store, false)
					begun(t, third, server(told))
					start, err := third.chooseStart(t.Context(), server(told))
					if err != nil || start != 0 && start < told {
						t.Errorf("with the slot at %s the next start is at %s: %v", told, start, err)
					}
				})
			}
		}
	}
}

// The position topic is deleted under a relay with parked keys, and the relay is killed after it has written its position
// again and before it has stored the keys again. The next relay stops, also if it parks no keys.
func TestParkedKeysLostWithoutThePosition(t *testing.T) {
	newWriter := func(store sink.PositionStore, acceptGap bool) *positionWriter {
		w := newTestWriter(store, acceptGap)
		w.parked.set = parking.NewSet(1)
		return w
	}
	store := &scriptedStore{}
	active := newWriter(store, false)
	begun(t, active, server(100))
	tracker := startTracker(t, active, server(100))
	letter, _ := active.parked.set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 150})
	deliver(tracker, 200)
	write(t, active)
	check := func(w *positionWriter, want error) {
		t.Helper()
		found, err := w.readStore(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Relay{positions: w}).checkParkedLost(t.Context(), found); !errors.Is(err, want) {
			t.Errorf("checkParkedLost returns %v, want %v", err, want)
		}
	}
	check(newWriter(store, false), nil)
	store.values = nil
	deliver(tracker, 300)
	write(t, active)
	check(active, nil)
	check(newWriter(store, false), errParkedLost)
	check(newTestWriter(store, false), errParkedLost)
	accepted := newWriter(&scriptedStore{values: slices.Clone(store.values)}, true)
	check(accepted, nil)
	begun(t, accepted, server(300))
	startTracker(t, accepted, server(300))
	check(accepted, nil)

	// The keys are stored again, and then released. The empty set says so.
	if err := active.restoreParked(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false), nil)
	if err := active.unparkKey(t.Context(), letter.Parking); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false), nil)
	next := newWriter(store, false)
	begun(t, next, server(300))
	startTracker(t, next, server(300))
	if err := next.storeParked(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false), nil)
}

// A topic that was re-created may have another value at the same place. It is not taken for the earlier one.
func TestParkedStoreParsesAnotherValueAtAPlace(t *testing.T) {
	s := newParkedStore()
	for term := range int64(3) {
		rec := parking.Record{Parkings: []parking.Parking{{ID: uuid.NewString(), Term: term}}}
		value, err := rec.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var found parkedState
		foreign := func(v sink.StoredValue, err error) { t.Errorf("%s: %v", v.Place, err) }
		if err := s.take([]sink.StoredValue{{Place: "positions/0:7", Key: sink.ParkedKey, Value: value}}, &found, foreign); err != nil {
			t.Fatal(err)
		}
		if found.record == nil || found.record.Parkings[0].Term != term {
			t.Errorf("found %+v, want term %d", found.record, term)
		}
	}
}

// Whoever loses the position record but not the set of parked keys goes on in a later term than any key of the set. Otherwise the
// relay would take its own dead letters of these keys for earlier ones, which a release leaves out.
func TestParkedKeysOutliveThePositionRecord(t *testing.T) {
	store := &scriptedStore{}
	key := parking.Key{Topic: "orders", Key: "k"}
	w, set := parkingWriter(t, store)
	set.Park(key, "bad", parking.Row{LSN: 150})
	write(t, w)
	for range 2 { // the second relay finds what the first one has written before it crashed
		store.values = slices.DeleteFunc(store.values, func(v sink.StoredValue) bool { return v.Key == sink.PositionKey })
		_, set = parkingWriter(t, store)
		parked, ok := set.Find(set.List()[0].ID)
		letter, _, follows := set.Follow(key.Topic, []byte(key.Key), parking.Row{LSN: 120})
		if !ok || !follows || !parked.Follows(letter.Place) {
			t.Errorf("parked is %+v, the next letter is at %s and follows: %t", parked, letter.Place, follows)
		}
	}
	_, set = parkingWriter(t, store)
	if set.Empty() {
		t.Error("a relay that found the first record of the one before has dropped the key")
	}
}

// parkingWriter returns the writer of another process that parks keys, and its set.
func parkingWriter(t *testing.T, store sink.PositionStore) (*positionWriter, *parking.Set) {
	t.Helper()
	w := newTestWriter(store, false)
	w.parked.set = parking.NewSet(1)
	begun(t, w, server(100))
	startTracker(t, w, server(100))
	return w, w.parked.set
}
