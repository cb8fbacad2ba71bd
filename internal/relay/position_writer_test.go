package relay

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A scriptedStore is a position store whose writes end when the test allows it.
type scriptedStore struct {
	mu     sync.Mutex
	value  []byte
	writes int
	allow  chan error // nil: at once
}

func (s *scriptedStore) Read(context.Context) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == nil {
		return nil, nil
	}
	return [][]byte{s.value}, nil
}

func (s *scriptedStore) Write(ctx context.Context, value []byte) error {
	if s.allow != nil {
		select {
		case err := <-s.allow:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
	s.writes++
	return nil
}

func (s *scriptedStore) position(t *testing.T) checkpoint.Position {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var p checkpoint.Position
	if err := json.Unmarshal(s.value, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func server(confirmed pglogrepl.LSN) checkpoint.Server {
	return checkpoint.Server{SystemID: "1", Timeline: 1, Slot: "s", Confirmed: confirmed, WALEnd: 10_000}
}

// deliver moves t to end.
func deliver(t *checkpoint.Tracker, end pglogrepl.LSN) {
	t.Begin(end-1, time.Time{})
	t.Commit(end)
}

func startedWriter(t *testing.T, store sink.PositionStore, s checkpoint.Server) (*positionWriter, *checkpoint.Tracker) {
	t.Helper()
	w := newPositionWriter(store, false, slog.New(slog.DiscardHandler))
	if err := w.readRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	start, err := w.chooseStart(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	tracker := checkpoint.New(start, nil)
	w.startSession(tracker)
	return w, tracker
}

// Postgres gets a position once its record is acknowledged. Asking for the position has the record
// written.
func TestPositionWriterConfirmsOnlyWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{allow: make(chan error)}
		w, tracker := startedWriter(t, store, server(100))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.run(ctx); err != nil {
				t.Error(err)
			}
		})
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
		want(100) // asks
		store.allow <- nil
		want(200)
		if p := store.position(t); p.EndLSN != 200 || p.SystemID != "1" || p.Slot != "s" || p.Timeline != 1 {
			t.Errorf("recorded %+v", p)
		}
		deliver(tracker, 300)
		deliver(tracker, 400)
		synctest.Wait()
		if store.writes != 2 {
			t.Errorf("%d records although nobody has asked", store.writes)
		}
		want(200) // asks
		store.allow <- nil
		want(400)
		stop()
		running.Wait()
	})
}

func TestPositionWriterWritesAPositionOnce(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	if err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if err := w.writePosition(t.Context()); err != nil || store.writes != 1 {
		t.Errorf("%d records of one position, %v", store.writes, err)
	}
}

// A store that fails ends the session. A write that waits ends with its context.
func TestPositionWriterFailsWithItsStore(t *testing.T) {
	store := &scriptedStore{allow: make(chan error, 1)}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	store.allow <- errors.New("refused")
	if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "record the position 0/C8: refused") {
		t.Errorf("run returns %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if err := w.writePosition(ctx); !errors.Is(err, over) {
		t.Errorf("record returns %v", err)
	}
	if got := w.confirmedPosition(); got != 0 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
}

// A standby has read the record long before it gets the slot. If another instance has advanced both
// since, that is no gap.
func TestPositionWriterOfAStandbyReadsTheRecordAgain(t *testing.T) {
	store := &scriptedStore{}
	active, tracker := startedWriter(t, store, server(100))
	if err := active.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := newPositionWriter(store, false, slog.New(slog.DiscardHandler))
	if err := standby.readRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(tracker, 500)
	if err := active.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.readRecord(t.Context()); err != nil {
		t.Fatal(err)
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

// A session that drains after it has lost its source writes what it has delivered, unless another
// instance has the slot meanwhile.
func TestPositionWriterKeepsTheRecordOfANewerInstance(t *testing.T) {
	for name, tc := range map[string]struct {
		taken bool
		want  pglogrepl.LSN
	}{"slot free": {false, 110}, "slot taken": {true, 400}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				position := checkpoint.Position{SystemID: "1", Timeline: 1, Slot: "s", EndLSN: 50, WrittenAt: time.Now()}
				store := &scriptedStore{value: marshal(t, position)}
				src := &scriptedSource{script: joinScripts(transaction(100, 110, "a", 1)), err: replication.ErrServerStopping}
				prod := newScriptedProducer()
				prod.auto = false
				s := newTestSession(t, src, prod, 50, interruptedTx{})
				s.positions.store = store
				if err := s.positions.readRecord(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := s.positions.chooseStart(t.Context(), server(50)); err != nil {
					t.Fatal(err)
				}
				s.positions.startSession(s.tracker)
				ended := make(chan error, 1)
				go func() { ended <- s.run(t.Context()) }()
				time.Sleep(time.Second) // the source is lost, the row is not acknowledged
				if tc.taken {
					position.EndLSN, position.Term = 400, 2
					if err := store.Write(t.Context(), marshal(t, position)); err != nil {
						t.Fatal(err)
					}
				}
				prod.ack(1)
				<-ended
				if got := store.position(t).EndLSN; got != tc.want {
					t.Errorf("recorded is %s, want %s", got, tc.want)
				}
			})
		})
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

// A snapshot becomes part of the record once its transaction is confirmed.
func TestPositionWriterKeepsDeliveredSnapshots(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	snapshot := func(lsn pglogrepl.LSN) {
		deliver(tracker, lsn)
		w.keepSnapshot(checkpoint.Snapshot{EndLSN: lsn, Text: lsn.String()})
	}
	snapshot(200)
	snapshot(300)
	deliver(tracker, 350)
	if err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := store.position(t); len(p.Snapshots) != 1 || p.Snapshots[0].EndLSN != 300 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
	snapshot(400)
	if err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := store.position(t); len(p.Snapshots) != 2 || p.Snapshots[0].EndLSN != 400 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
}

// A record that cannot be read is an error, not a missing record.
func TestPositionWriterRejectsARecordItCannotRead(t *testing.T) {
	w := newPositionWriter(&scriptedStore{value: []byte(`{"version": 9}`)}, false, slog.New(slog.DiscardHandler))
	err := w.readRecord(t.Context())
	if ExitCode(err) != ExitContinuity || Advice(err) == "" {
		t.Errorf("restore returns %v", err)
	}
}

func TestPositionWriterWithoutAStoreConfirmsTheTrackersPosition(t *testing.T) {
	w, tracker := startedWriter(t, nil, server(100))
	deliver(tracker, 200)
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if start, err := w.chooseStart(t.Context(), server(300)); start != 0 || err != nil {
		t.Errorf("resume returns %s, %v", start, err)
	}
}

// A write that was given up may have been stored. It is not taken for another instance's. Until
// there is a newer record, nothing is confirmed rather than less than the start.
func TestPositionWriterConfirmsNothingWhileTheRecordIsBehind(t *testing.T) {
	store := &scriptedStore{allow: make(chan error, 1)}
	w, tracker := startedWriter(t, store, server(100))
	store.allow <- nil
	if err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(tracker, 200)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.writePosition(ctx); err == nil {
		t.Fatal("the write was not given up")
	}
	given := w.stored
	given.EndLSN = 200
	store.value = marshal(t, given) // stored in spite of that
	next := checkpoint.New(200, nil)
	w.startSession(next)
	if got := w.confirmedPosition(); got != 0 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	deliver(next, 300)
	store.allow <- nil
	if err := w.writePositionLate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := store.position(t).EndLSN; got != 300 || w.confirmedPosition() != 300 {
		t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.confirmedPosition())
	}
}

// A session that starts at the record writes in its term. One that starts at the slot's position,
// without a record, after a promotion or after an accepted gap, writes in a new term.
func TestPositionWriterStartsANewTermAtTheSlotsPosition(t *testing.T) {
	store := &scriptedStore{}
	promoted := server(100)
	promoted.Timeline++
	for n, tc := range []struct {
		server checkpoint.Server
		want   int64
	}{{server(100), 1}, {server(100), 1}, {promoted, 2}, {promoted, 2}} {
		w, tracker := startedWriter(t, store, tc.server)
		deliver(tracker, pglogrepl.LSN(200+100*n))
		if err := w.writePosition(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := store.position(t).Term; got != tc.want {
			t.Errorf("session %d writes term %d, want %d", n+1, got, tc.want)
		}
	}
}

// If another instance has the slot between the read of the record and the start, the session does not
// start, and the next one starts at what that instance has written.
func TestPositionWriterDetectsARecordThatChangedBeforeTheStart(t *testing.T) {
	store := &scriptedStore{}
	active, before := startedWriter(t, store, server(100))
	standby := newPositionWriter(store, false, slog.New(slog.DiscardHandler))
	look := func() (start pglogrepl.LSN) {
		t.Helper()
		if err := standby.readRecord(t.Context()); err != nil {
			t.Fatal(err)
		}
		start, err := standby.chooseStart(t.Context(), server(100))
		if err != nil {
			t.Fatal(err)
		}
		return start
	}
	look()
	deliver(before, 500)
	if err := active.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.checkUnchanged(t.Context()); !errors.Is(err, errSlotChanged) {
		t.Fatalf("checkUnchanged: %v", err)
	}
	start := look()
	if err := standby.checkUnchanged(t.Context()); err != nil || start != 500 {
		t.Fatalf("checkUnchanged: %v, start at %s", err, start)
	}
	tracker := checkpoint.New(start, nil)
	standby.startSession(tracker)
	deliver(tracker, 600)
	if err := standby.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := store.position(t); p.EndLSN != 600 || p.Term != 1 {
		t.Errorf("recorded is %+v", p)
	}
}

// The record says that an initial copy is not delivered yet, from before there is a slot.
func TestPositionWriterKeepsAPendingCopy(t *testing.T) {
	store := &scriptedStore{}
	first := newPositionWriter(store, false, slog.New(slog.DiscardHandler))
	if err := first.announceCopy(t.Context(), "1", "s"); err != nil {
		t.Fatal(err)
	}
	if err := first.requireNoRecord(t.Context(), "s"); err != nil { // the process ended before it made the slot
		t.Errorf("the slot cannot be made: %v", err)
	}
	for range 2 { // the second one finds the slot
		w, tracker := startedWriter(t, store, server(100))
		if !w.copyPending() {
			t.Error("no copy is to be made")
		}
		if err := w.writePosition(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := store.position(t); !p.Copying || p.EndLSN != 100 {
			t.Errorf("recorded is %+v", p)
		}
		if tracker.Confirmed() > 100 || w.confirmedPosition() > 100 {
			t.Errorf("confirmed %s, confirmed to Postgres is %s", tracker.Confirmed(), w.confirmedPosition())
		}
	}
	w, tracker := startedWriter(t, store, server(100))
	w.markCopied()
	if err := w.writePosition(t.Context()); err != nil { // although no position is new
		t.Fatal(err)
	}
	if p := store.position(t); p.Copying || p.EndLSN != 100 {
		t.Errorf("recorded is %+v", p)
	}
	deliver(tracker, 200)
	if err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, _ := startedWriter(t, store, server(100)); again.copyPending() {
		t.Error("the copy is to be made again")
	}
}

// An accepted gap gives up the rest of a copy. A slot that was created now has no gap.
func TestPositionWriterGivesUpACopyWithAnAcceptedGap(t *testing.T) {
	store := &scriptedStore{}
	first := newPositionWriter(store, true, slog.New(slog.DiscardHandler))
	if err := first.announceCopy(t.Context(), "1", "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.chooseStart(t.Context(), server(100)); err != nil || !first.copyPending() {
		t.Errorf("the copy of a slot made now is given up: %v", err)
	}
	w := newPositionWriter(store, true, slog.New(slog.DiscardHandler))
	if err := w.readRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.chooseStart(t.Context(), server(100)); err != nil || w.copyPending() {
		t.Errorf("the copy is not given up: %v", err)
	}
}
