package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A scriptedStore is a position store whose writes end when the test allows it.
type scriptedStore struct {
	mu     sync.Mutex
	values []sink.StoredValue
	writes int
	allow  chan error         // nil: at once
	stale  []sink.StoredValue // what Read returns, if it is not nil
	silent bool               // Read does not return
	refuse error              // what Read returns, if it is not nil
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
	if s.stale != nil {
		return s.stale, nil
	}
	return slices.Clone(s.values), nil
}

func (s *scriptedStore) Write(ctx context.Context, writer string, value []byte) error {
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
	s.values = slices.DeleteFunc(s.values, func(v sink.StoredValue) bool { return v.Writer == writer })
	if value != nil {
		s.values = append(s.values, sink.StoredValue{Writer: writer, Value: value})
	}
	s.writes++
	return nil
}

// NextIdentity counts what was given.
func (s *scriptedStore) NextIdentity(_ context.Context, given ...[]byte) ([]byte, error) {
	highest := 0
	for _, g := range given {
		n, err := strconv.Atoi(string(g))
		if err != nil {
			return nil, err
		}
		highest = max(highest, n)
	}
	return []byte(strconv.Itoa(highest + 1)), nil
}

// position returns the newest record.
func (s *scriptedStore) position(t *testing.T) checkpoint.Position {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var p checkpoint.Position
	if err := json.Unmarshal(s.values[len(s.values)-1].Value, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func server(confirmed pglogrepl.LSN) checkpoint.Server {
	return checkpoint.Server{SystemID: "1", Timeline: 1, Slot: "s", Confirmed: confirmed, WALEnd: 10_000}
}

// deliver moves t to end.
func deliver(t *checkpoint.Tracker, end pglogrepl.LSN) {
	if err := errors.Join(t.Begin(end-1, time.Time{}), t.Commit(end)); err != nil {
		panic(err)
	}
}

func newTestWriter(store sink.PositionStore, acceptGap bool) *positionWriter {
	return newPositionWriter(store, acceptGap, slog.New(slog.DiscardHandler))
}

// claimed has w claim the slot of s.
func claimed(t *testing.T, w *positionWriter, s checkpoint.Server) {
	t.Helper()
	found, err := w.readStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.claim(t.Context(), found, s); err != nil {
		t.Fatal(err)
	}
}

// startedWriter returns the writer of another process that has claimed the slot of s.
func startedWriter(t *testing.T, store sink.PositionStore, s checkpoint.Server) (*positionWriter, *checkpoint.Tracker) {
	t.Helper()
	w := newTestWriter(store, false)
	claimed(t, w, s)
	return w, startTracker(t, w, s)
}

// startTracker begins a tenure.
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

// write has w write what is confirmed.
func write(t *testing.T, w *positionWriter) {
	t.Helper()
	if _, err := w.writePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Postgres gets a position once its record is acknowledged. Asking for the position has the record
// written.
func TestPositionWriterConfirmsOnlyWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		w, tracker := startedWriter(t, store, server(100))
		store.allow = make(chan error)
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
		if store.writes != 4 { // the first two are the claim
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
	write(t, w)
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if wrote, err := w.writePosition(t.Context()); err != nil || wrote || store.writes != 3 { // the first two are the claim
		t.Errorf("%d records of one position, %v", store.writes-2, err)
	}
}

// A store that fails ends the session. A write that waits ends with its context.
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

// A standby that gets the slot starts at what the one before has written last. A slot ahead of that is a
// gap.
func TestPositionWriterContinuesTheRecordOfAnotherProcess(t *testing.T) {
	store := &scriptedStore{}
	active, tracker := startedWriter(t, store, server(100))
	write(t, active)
	deliver(tracker, 500)
	write(t, active)
	standby := newTestWriter(store, false)
	claimed(t, standby, server(400))
	start, err := standby.chooseStart(t.Context(), server(400))
	if start != 500 || err != nil {
		t.Errorf("the standby starts at %s, %v", start, err)
	}
	_, err = standby.chooseStart(t.Context(), server(501))
	if _, isGap := errors.AsType[*checkpoint.GapError](err); !isGap || ExitCode(err) != ExitContinuity {
		t.Errorf("a slot ahead of the record: %v", err)
	}
}

// Each claim is higher than all before it, and so is its identity. The process before notices it with
// its next record, and cannot go on; what it writes late does not count.
func TestPositionWriterClaims(t *testing.T) {
	store := &scriptedStore{}
	first, before := startedWriter(t, store, server(100))
	write(t, first)
	if err := first.checkClaim(t.Context()); err != nil {
		t.Errorf("alone: %v", err)
	}
	second, after := startedWriter(t, store, server(100))
	if p := store.position(t); p.Claim != 2 || string(p.Identity) != "2" || p.EndLSN != 100 || p.Writer != second.writer {
		t.Errorf("the second claim is %+v", p)
	}
	found, err := first.readStore(t.Context())
	if err != nil || first.canContinue(found, server(100)) {
		t.Errorf("the first one may go on, %v", err)
	}
	deliver(after, 300)
	write(t, second)
	deliver(before, 200)
	write(t, first) // late
	if err := first.checkClaim(t.Context()); !errors.Is(err, errForeignClaim) || ExitCode(err) != ExitSlotInUse {
		t.Errorf("checkClaim of the first: %v", err)
	}
	if err := second.checkClaim(t.Context()); err != nil {
		t.Errorf("checkClaim of the second: %v", err)
	}
	found, err = second.readStore(t.Context())
	if err != nil || found.position.EndLSN != 300 || !second.canContinue(found, server(100)) || second.canContinue(found, server(301)) {
		t.Errorf("the second one finds %+v, %v", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.run(ctx); err != nil || len(store.values) != 1 {
		t.Errorf("after the second has started there are %d records, %v", len(store.values), err)
	}
	third, _ := startedWriter(t, store, server(100))
	if p := third.stored; p.Claim != 3 || string(p.Identity) != "3" || p.EndLSN != 300 {
		t.Errorf("the third claim is %+v", p)
	}
}

// Two processes that have found the same claim do not take the same one: the later one sees the other
// and claims again.
func TestPositionWriterDoesNotShareAClaim(t *testing.T) {
	store := &scriptedStore{}
	a, b := newTestWriter(store, false), newTestWriter(store, false)
	found, err := a.readStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*positionWriter{a, b} {
		if err := w.claim(t.Context(), found, server(100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.checkClaim(t.Context()); !errors.Is(err, errForeignClaim) {
		t.Errorf("checkClaim of the first: %v", err)
	}
	if err := b.checkClaim(t.Context()); err != nil || b.stored.Claim != 2 || string(b.stored.Identity) != "2" {
		t.Errorf("the second has %+v, %v", b.stored, err)
	}
}

// Of two processes with the same claim only the one that was first may have sent records. The other one
// ranks above the first's identity, and the first above its own.
func TestPositionWriterRanksAboveWhatIsOnTheWire(t *testing.T) {
	store := &scriptedStore{}
	first := newTestWriter(store, false)
	claimed(t, first, server(100))
	late := first.stored
	late.Writer, late.Identity = "late", []byte(`9`)
	own := store.values[0]
	foreign := sink.StoredValue{Writer: "late", Value: marshal(t, late)}
	for _, values := range [][]sink.StoredValue{{own, foreign}, {foreign, own}} {
		store.values = values
		found, err := first.readStore(t.Context())
		if err != nil || found.owns(first.stored.Claim) || string(found.identities[len(found.identities)-1]) != string(first.stored.Identity) {
			t.Errorf("the first finds %+v, %v", found, err)
		}
		second := newTestWriter(store, false)
		second.writer = "late"
		found, err = second.readStore(t.Context())
		if err != nil || found.owns(late.Claim) || string(found.identities[len(found.identities)-1]) != string(first.stored.Identity) {
			t.Errorf("the second finds %+v, %v", found, err)
		}
	}
}

// A process that found no claim tried one again and again, and all of that is stored when another process
// has the slot and may have sent records. Whoever claims next ranks above those, although the late claim is
// higher.
func TestPositionWriterRanksAboveRecordsWhenAClaimIsLate(t *testing.T) {
	store := &scriptedStore{}
	late := newTestWriter(store, false)
	p, err := late.writeClaim(t.Context(), &storeState{others: 2}, server(100))
	if err != nil {
		t.Fatal(err)
	}
	p.Identity = []byte(`9`)
	store.values = nil
	sends := newTestWriter(store, false)
	claimed(t, sends, server(100))
	store.values = append(store.values, sink.StoredValue{Writer: late.writer, Value: marshal(t, *p)})
	for _, w := range []*positionWriter{sends, late, newTestWriter(store, false)} {
		found, err := w.readStore(t.Context())
		if err != nil || found.highest() != 3 || string(found.identities[len(found.identities)-1]) != string(sends.stored.Identity) {
			t.Errorf("found is %+v, %v", found, err)
		}
	}
	if claimed(t, late, server(100)); late.stored.Claim != 4 {
		t.Errorf("claim %d after claim 3", late.stored.Claim)
	}
}

// What a claim replaces may be removed late, when that process claims again. Its new claim stays, also if
// the one before was an attempt whose outcome it does not know.
func TestPositionWriterRemovesNoLaterClaim(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		store := &scriptedStore{}
		first := newTestWriter(store, false)
		if unknown {
			if _, err := first.writeClaim(t.Context(), &storeState{}, server(100)); err != nil {
				t.Fatal(err)
			}
		} else {
			claimed(t, first, server(100))
		}
		second := newTestWriter(store, false)
		claimed(t, second, server(100))
		claimed(t, first, server(100))
		if err := second.dropReplaced(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := second.checkClaim(t.Context()); !errors.Is(err, errForeignClaim) {
			t.Errorf("outcome unknown %t: checkClaim of the second: %v", unknown, err)
		}
		if err := first.checkClaim(t.Context()); err != nil {
			t.Errorf("outcome unknown %t: checkClaim of the first: %v", unknown, err)
		}
	}
}

// A process that tries to claim again, after what it has found at first, does not take the identity of one
// that has claimed meanwhile.
func TestPositionWriterDoesNotShareAnIdentity(t *testing.T) {
	store := &scriptedStore{}
	startedWriter(t, store, server(100))
	late, other := newTestWriter(store, false), newTestWriter(store, false)
	found, err := late.readStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store.allow = make(chan error, 1)
	store.allow <- sink.ErrUnreachable
	if err := late.claim(t.Context(), found, server(100)); !errors.Is(err, sink.ErrUnreachable) {
		t.Fatal(err)
	}
	store.allow = nil
	claimed(t, other, server(100))
	if err := late.claim(t.Context(), found, server(100)); err != nil {
		t.Fatal(err)
	}
	if string(late.stored.Identity) == string(other.stored.Identity) {
		t.Errorf("both claims have the identity %s", late.stored.Identity)
	}
}

// A store that does not show what it has acknowledged may hide another process's claim too.
func TestPositionWriterWaitsUntilItSeesItsClaim(t *testing.T) {
	store := &scriptedStore{}
	w := newTestWriter(store, false)
	claimed(t, w, server(100))
	before := slices.Clone(store.values)
	other, _ := startedWriter(t, store, server(100))
	store.stale = before
	for range 2 { // also if an older claim of its own is shown
		if err := w.claim(t.Context(), &storeState{others: 1}, server(100)); !errors.Is(err, sink.ErrUnreachable) {
			t.Fatal(err)
		}
	}
	store.stale = nil
	if err := w.claim(t.Context(), &storeState{others: 1}, server(100)); err != nil || w.stored.Claim <= other.stored.Claim {
		t.Errorf("claim %d above %d, %v", w.stored.Claim, other.stored.Claim, err)
	}
}

// A relay that has met the wrong server does not claim the slot of the right one.
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

// A store that refuses to be read does not end a tenure, and is logged once. A foreign claim that it hides
// ends it as soon as it is shown.
func TestPositionWriterOutlivesALostRight(t *testing.T) {
	var log strings.Builder
	store := &scriptedStore{}
	w, _ := startedWriter(t, store, server(100))
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	startedWriter(t, store, server(100))
	store.refuse = fmt.Errorf("%w: no", sink.ErrAccess)
	for range 3 {
		if err := w.watchClaims(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "cannot read the position topic"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	store.refuse = nil
	if err := w.watchClaims(t.Context()); !errors.Is(err, errForeignClaim) {
		t.Errorf("watchClaims: %v", err)
	}
}

// What the store has lost while the process ran is written again, above the claim that is lost.
func TestPositionWriterOutlivesItsStore(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	deliver(tracker, 200)
	write(t, w)
	store.values = nil
	if err := w.checkClaim(t.Context()); !errors.Is(err, errForeignClaim) {
		t.Errorf("checkClaim: %v", err)
	}
	claimed(t, w, server(200))
	if p := store.position(t); p.EndLSN != 200 || p.Claim != 2 || string(p.Identity) != "2" {
		t.Errorf("claims %+v", p)
	}
}

// A transaction that is delivered in part is in the record, and the next process goes on in it.
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

// deliverAll acknowledges n records and ends their transaction.
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

// The record of a version without claims is carried on. Its key gets one that such a version refuses.
func TestPositionWriterCarriesOnAnOldRecord(t *testing.T) {
	old := []byte(`{"version":1,"system_id":"1","timeline":1,"slot":"s","end_lsn":"0/190","term":4}`)
	store := &scriptedStore{values: []sink.StoredValue{{Value: []byte("somebody else's")}, {Value: old}}}
	w, tracker := startedWriter(t, store, server(100))
	if tracker.Confirmed() != 400 || w.stored.Claim != 1 || w.next.Term != 4 {
		t.Errorf("starts at %s with %+v", tracker.Confirmed(), w.next)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, v := range store.values {
		if v.Writer == "" && !strings.HasPrefix(string(v.Value), `{"version":3,`) {
			t.Errorf("an old version reads %s", v.Value)
		}
	}
	if again, tracker := startedWriter(t, store, server(100)); tracker.Confirmed() != 400 || again.stored.Claim != 2 {
		t.Errorf("the next process starts at %s with %+v", tracker.Confirmed(), again.stored)
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

// A record that cannot be read is an error, not a missing record.
func TestPositionWriterRejectsARecordItCannotRead(t *testing.T) {
	for _, writer := range []string{"", "8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"} {
		store := &scriptedStore{values: []sink.StoredValue{{Writer: writer, Value: []byte(`{"version": 9}`)}}}
		_, err := newTestWriter(store, false).readStore(t.Context())
		if ExitCode(err) != ExitContinuity || Advice(err) == "" {
			t.Errorf("readStore returns %v", err)
		}
	}
}

// A value that no relay has written is ignored with one warning, and moves nothing: neither position nor
// claim.
func TestPositionWriterIgnoresForgedValues(t *testing.T) {
	const other = "8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"
	honest := &scriptedStore{}
	w, _ := startedWriter(t, honest, server(100))
	write(t, w)
	for name, forged := range map[string]string{
		"text":                "anything",
		"no version":          `{"system_id": "1", "slot": "s", "end_lsn": "0/500"}`,
		"no system":           `{"version": 3, "system_id": "x", "slot": "s", "end_lsn": "0/500", "claim": 9, "writer": "` + other + `"}`,
		"no LSN":              `{"version": 3, "system_id": "1", "slot": "s", "end_lsn": "far", "claim": 9, "writer": "` + other + `"}`,
		"largest claim":       `{"version": 3, "system_id": "1", "slot": "s", "end_lsn": "0/500", "claim": 9223372036854775807, "writer": "` + other + `"}`,
		"another's claim":     `{"version": 3, "system_id": "1", "slot": "s", "end_lsn": "0/500", "term": 9, "claim": 9, "writer": "` + w.writer + `"}`,
		"claim of nobody":     `{"version": 3, "system_id": "1", "slot": "s", "end_lsn": "0/500", "term": 9, "claim": 9}`,
		"position, no claim":  `{"version": 2, "system_id": "1", "slot": "s", "end_lsn": "0/500", "term": 9}`,
		"no value of any use": `[]`,
	} {
		var log strings.Builder
		store := &scriptedStore{values: append(slices.Clone(honest.values), sink.StoredValue{Writer: other, Value: []byte(forged), Place: "topic p, offset 7"})}
		reader := newPositionWriter(store, false, slog.New(slog.NewTextHandler(&log, nil)))
		for range 2 {
			found, err := reader.readStore(t.Context())
			if err != nil || found.highest() != 1 || found.position.EndLSN != 100 {
				t.Errorf("%s: found %+v, %v", name, found, err)
			}
		}
		if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "topic p, offset 7") {
			t.Errorf("%s: logged %q", name, log.String())
		}
	}
}

// Without a store the record is in memory: another system is a gap, and a slot that is ahead, which
// another instance may have had, is an ERROR line.
func TestPositionWriterWithoutAStore(t *testing.T) {
	var log strings.Builder
	w := newPositionWriter(nil, false, slog.New(slog.NewTextHandler(&log, nil)))
	claimed(t, w, server(100))
	tracker := startTracker(t, w, server(100))
	write(t, w)
	deliver(tracker, 200)
	write(t, w)
	if got := w.confirmedPosition(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	found, err := w.readStore(t.Context())
	if err != nil || !w.canContinue(found, server(150)) || w.canContinue(found, server(300)) {
		t.Errorf("found %+v, %v", found, err)
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

// A write that was given up may have been stored. It is not taken for another instance's.
func TestPositionWriterGoesOnAfterAWriteThatWasGivenUp(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	write(t, w)
	store.allow = make(chan error)
	deliver(tracker, 200)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.writePosition(ctx); err == nil {
		t.Fatal("the write was not given up")
	}
	given := w.stored
	given.EndLSN = 200
	store.values[0].Value = marshal(t, given) // stored in spite of that
	found, err := w.readStore(t.Context())
	if err != nil || !w.canContinue(found, server(100)) {
		t.Errorf("found %+v, %v", found, err)
	}
	store.allow = nil
	write(t, w)
	if got := store.position(t).EndLSN; got != 200 || w.confirmedPosition() != 200 {
		t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.confirmedPosition())
	}
}

// A tenure that starts at the record writes in its term. One that starts elsewhere or on another
// timeline writes in a new term.
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

// The record says that an initial copy is not delivered yet, from before there is a slot.
func TestPositionWriterKeepsAPendingCopy(t *testing.T) {
	store := &scriptedStore{}
	first := newTestWriter(store, false)
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
	write(t, w) // although no position is new
	if p := store.position(t); p.Copying || p.EndLSN != 100 {
		t.Errorf("recorded is %+v", p)
	}
	deliver(tracker, 200)
	write(t, w)
	if again, _ := startedWriter(t, store, server(100)); again.copyPending() {
		t.Error("the copy is to be made again")
	}
}

// An accepted gap gives up the rest of a copy. A slot that was created now has no gap.
func TestPositionWriterGivesUpACopyWithAnAcceptedGap(t *testing.T) {
	store := &scriptedStore{}
	first := newTestWriter(store, true)
	if err := first.announceCopy(t.Context(), "1", "s"); err != nil {
		t.Fatal(err)
	}
	claimed(t, first, server(100))
	if _, err := first.chooseStart(t.Context(), server(100)); err != nil || !first.copyPending() {
		t.Errorf("the copy of a slot made now is given up: %v", err)
	}
	w := newTestWriter(store, true)
	claimed(t, w, server(100))
	if _, err := w.chooseStart(t.Context(), server(100)); err != nil || w.copyPending() {
		t.Errorf("the copy is not given up: %v", err)
	}
}

// A relay that has waited for the slot, got it and crashed leaves no gap, wherever it was: whoever has the
// slot next starts where Postgres was told or behind it, also if the owner before it writes late.
func TestCrashOfAStandbyLeavesNoGap(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, recorded := range []bool{false, true} {
			for stage := range 5 {
				t.Run(fmt.Sprintf("stage %d, recorded %t, late %t", stage, recorded, late), func(t *testing.T) {
					store, told := &scriptedStore{}, pglogrepl.LSN(50)
					first, tracker := startedWriter(t, store, server(told))
					if recorded {
						deliver(tracker, 110)
						write(t, first)
						told = first.confirmedPosition()
					}
					standby := newTestWriter(store, false)
					claimed(t, standby, server(told))
					if stage >= 1 {
						deliver(startTracker(t, standby, server(told)), 210)
					}
					if stage >= 2 {
						if err := standby.dropReplaced(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if late {
						deliver(tracker, 160)
						write(t, first)
					}
					if stage >= 3 {
						write(t, standby)
					}
					if stage >= 4 {
						told = max(told, standby.confirmedPosition())
					}
					third := newTestWriter(store, false)
					claimed(t, third, server(told))
					start, err := third.chooseStart(t.Context(), server(told))
					if err != nil || start != 0 && start < told {
						t.Errorf("with the slot at %s the next start is at %s: %v", told, start, err)
					}
				})
			}
		}
	}
}
