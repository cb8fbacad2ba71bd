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

// A scriptedRegister holds a value; a write ends when it is allowed to.
type scriptedRegister struct {
	mu     sync.Mutex
	value  []byte
	writes int
	allow  chan error // nil: at once
}

func (r *scriptedRegister) Read(context.Context) ([][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value == nil {
		return nil, nil
	}
	return [][]byte{r.value}, nil
}

func (r *scriptedRegister) Write(ctx context.Context, value []byte) error {
	if r.allow != nil {
		select {
		case err := <-r.allow:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = value
	r.writes++
	return nil
}

func (r *scriptedRegister) position(t *testing.T) checkpoint.Position {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var p checkpoint.Position
	if err := json.Unmarshal(r.value, &p); err != nil {
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

func begun(t *testing.T, reg sink.PositionStore, s checkpoint.Server) (*recorder, *checkpoint.Tracker) {
	t.Helper()
	r := newRecorder(reg, false, slog.New(slog.DiscardHandler))
	if reg != nil {
		if err := r.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	start, err := r.resume(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	tracker := checkpoint.New(start, nil)
	r.begin(tracker)
	return r, tracker
}

// The server is told a position once its record is acknowledged, and asking for it is what
// has the record written.
func TestRecordedBeforeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &scriptedRegister{allow: make(chan error)}
		r, tracker := begun(t, reg, server(100))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.run(ctx); err != nil {
				t.Error(err)
			}
		})
		want := func(lsn pglogrepl.LSN) {
			t.Helper()
			synctest.Wait()
			if got := r.confirmed(); got != lsn {
				t.Errorf("the server is told %s, want %s", got, lsn)
			}
		}
		synctest.Wait()
		deliver(tracker, 200)
		want(0) // not even the slot's own position is recorded
		reg.allow <- nil
		want(100) // asks
		reg.allow <- nil
		want(200)
		if p := reg.position(t); p.EndLSN != 200 || p.SystemID != "1" || p.Slot != "s" || p.Timeline != 1 {
			t.Errorf("recorded %+v", p)
		}
		deliver(tracker, 300)
		deliver(tracker, 400)
		synctest.Wait()
		if reg.writes != 2 {
			t.Errorf("%d records although nobody has asked", reg.writes)
		}
		want(200) // asks
		reg.allow <- nil
		want(400)
		stop()
		running.Wait()
	})
}

// At the end of a session what is confirmed is recorded, however busy the register was.
func TestRecordAtTheEnd(t *testing.T) {
	reg := &scriptedRegister{}
	r, tracker := begun(t, reg, server(100))
	deliver(tracker, 200)
	if err := r.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.confirmed(); got != 200 {
		t.Errorf("the server is told %s", got)
	}
	if err := r.record(t.Context()); err != nil || reg.writes != 1 {
		t.Errorf("%d records of one position, %v", reg.writes, err)
	}
}

// A register that fails ends the session; one that waits does so until the context ends.
func TestRecordFails(t *testing.T) {
	reg := &scriptedRegister{allow: make(chan error, 1)}
	r, tracker := begun(t, reg, server(100))
	deliver(tracker, 200)
	reg.allow <- errors.New("refused")
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "record the position 0/C8: refused") {
		t.Errorf("run returns %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if err := r.record(ctx); !errors.Is(err, over) {
		t.Errorf("record returns %v", err)
	}
	if got := r.confirmed(); got != 0 {
		t.Errorf("the server is told %s", got)
	}
}

// A standby has read its record long before it gets the slot. That another instance has
// moved both since is no gap.
func TestStandbyReadsAgain(t *testing.T) {
	reg := &scriptedRegister{}
	active, tracker := begun(t, reg, server(100))
	if err := active.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := newRecorder(reg, false, slog.New(slog.DiscardHandler))
	if err := standby.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(tracker, 500)
	if err := active.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	start, err := standby.resume(t.Context(), server(400))
	if start != 500 || err != nil {
		t.Errorf("the standby starts at %s, %v", start, err)
	}
	_, err = standby.resume(t.Context(), server(501))
	if _, isGap := errors.AsType[*checkpoint.GapError](err); !isGap || ExitCode(err) != ExitContinuity {
		t.Errorf("a slot ahead of the record: %v", err)
	}
}

// A session that drains after it has lost its source records what it has delivered, unless
// another instance has taken the slot meanwhile.
func TestRecordAfterTheSourceIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		taken bool
		want  pglogrepl.LSN
	}{"slot free": {false, 110}, "slot taken": {true, 400}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				position := checkpoint.Position{SystemID: "1", Timeline: 1, Slot: "s", EndLSN: 50, WrittenAt: time.Now()}
				reg := new(scriptedRegister)
				store := func() {
					if err := reg.Write(t.Context(), marshal(t, position)); err != nil {
						t.Fatal(err)
					}
				}
				store()
				src := &scriptedSource{script: join(transaction(100, 110, "a", 1)), err: replication.ErrServerStopping}
				prod := newScriptedProducer()
				prod.auto = false
				s := sessionOf(t, src, prod, 50, cut{})
				s.recorder.register, s.recorder.last = reg, position
				ended := make(chan error, 1)
				go func() { ended <- s.run(t.Context()) }()
				time.Sleep(time.Second) // the source is lost, the row is not acknowledged
				if tc.taken {
					position.EndLSN, position.Term = 400, s.recorder.term+1
					store()
				}
				prod.ack(1)
				<-ended
				if got := reg.position(t).EndLSN; got != tc.want {
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
func TestSnapshotIsRecorded(t *testing.T) {
	reg := &scriptedRegister{}
	r, tracker := begun(t, reg, server(100))
	snapshot := func(lsn pglogrepl.LSN) {
		deliver(tracker, lsn)
		r.delivered(checkpoint.Snapshot{EndLSN: lsn, Text: lsn.String()})
	}
	snapshot(200)
	snapshot(300)
	deliver(tracker, 350)
	if err := r.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := reg.position(t); len(p.Snapshots) != 1 || p.Snapshots[0].EndLSN != 300 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
	snapshot(400)
	if err := r.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := reg.position(t); len(p.Snapshots) != 2 || p.Snapshots[0].EndLSN != 400 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
}

// What cannot be read is not taken for nothing.
func TestRecordOfAnotherProgram(t *testing.T) {
	r := newRecorder(&scriptedRegister{value: []byte(`{"version": 9}`)}, false, slog.New(slog.DiscardHandler))
	err := r.restore(t.Context())
	if ExitCode(err) != ExitContinuity || Advice(err) == "" {
		t.Errorf("restore returns %v", err)
	}
}

// Without a register the position passes through.
func TestNothingIsKept(t *testing.T) {
	r, tracker := begun(t, nil, server(100))
	deliver(tracker, 200)
	if got := r.confirmed(); got != 200 {
		t.Errorf("the server is told %s", got)
	}
	if start, err := r.resume(t.Context(), server(300)); start != 0 || err != nil {
		t.Errorf("resume returns %s, %v", start, err)
	}
}

// A write that was given up may have been stored: it is not taken for another instance's,
// and until there is a newer record nothing is reported rather than less than the start.
func TestRecordThatWasGivenUp(t *testing.T) {
	reg := &scriptedRegister{allow: make(chan error, 1)}
	r, tracker := begun(t, reg, server(100))
	reg.allow <- nil
	if err := r.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(tracker, 200)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.record(ctx); err == nil {
		t.Fatal("the write was not given up")
	}
	given := r.last
	given.EndLSN = 200
	reg.value = marshal(t, given) // stored in spite of that
	next := checkpoint.New(200, nil)
	r.begin(next)
	if got := r.confirmed(); got != 0 {
		t.Errorf("the server is told %s", got)
	}
	deliver(next, 300)
	reg.allow <- nil
	if err := r.recordLate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := reg.position(t).EndLSN; got != 300 || r.confirmed() != 300 {
		t.Errorf("recorded is %s, the server is told %s", got, r.confirmed())
	}
}

// A session that goes on where the record ends writes under its term. One that begins where it
// finds the slot, with no record, behind a promotion or behind a gap that was accepted, writes
// under a new one, above all it has found.
func TestTerms(t *testing.T) {
	reg := &scriptedRegister{}
	promoted := server(100)
	promoted.Timeline++
	for n, tc := range []struct {
		server checkpoint.Server
		want   int64
	}{{server(100), 1}, {server(100), 1}, {promoted, 2}, {promoted, 2}} {
		r, tracker := begun(t, reg, tc.server)
		deliver(tracker, pglogrepl.LSN(200+100*n))
		if err := r.record(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := reg.position(t).Term; got != tc.want {
			t.Errorf("session %d writes term %d, want %d", n+1, got, tc.want)
		}
	}
}

// Another instance has the slot between our look at the record and our start: the session does
// not begin, and the next one begins with what that one has recorded.
func TestRecordMovesBeforeTheSlotIsOurs(t *testing.T) {
	reg := &scriptedRegister{}
	active, before := begun(t, reg, server(100))
	standby := newRecorder(reg, false, slog.New(slog.DiscardHandler))
	look := func() (start pglogrepl.LSN) {
		t.Helper()
		if err := standby.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		start, err := standby.resume(t.Context(), server(100))
		if err != nil {
			t.Fatal(err)
		}
		return start
	}
	look()
	deliver(before, 500)
	if err := active.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.hold(t.Context()); !errors.Is(err, errChangedHands) {
		t.Fatalf("hold: %v", err)
	}
	start := look()
	if err := standby.hold(t.Context()); err != nil || start != 500 {
		t.Fatalf("hold: %v, start at %s", err, start)
	}
	tracker := checkpoint.New(start, nil)
	standby.begin(tracker)
	deliver(tracker, 600)
	if err := standby.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := reg.position(t); p.EndLSN != 600 || p.Term != 1 {
		t.Errorf("recorded is %+v", p)
	}
}

// Until an initial copy is delivered the record says so, whoever finds it, from before there
// is a slot.
func TestRecordOfACopy(t *testing.T) {
	reg := &scriptedRegister{}
	first := newRecorder(reg, false, slog.New(slog.DiscardHandler))
	if err := first.intend(t.Context(), "1", "s"); err != nil {
		t.Fatal(err)
	}
	if err := first.left(t.Context(), "s"); err != nil { // the process ended before it made the slot
		t.Errorf("the slot cannot be made: %v", err)
	}
	for range 2 { // the second one finds the slot
		r, tracker := begun(t, reg, server(100))
		if !r.copying() {
			t.Error("no copy is to be made")
		}
		if err := r.record(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := reg.position(t); !p.Copying || p.EndLSN != 100 {
			t.Errorf("recorded is %+v", p)
		}
		if tracker.Confirmed() > 100 || r.confirmed() > 100 {
			t.Errorf("confirmed %s, the server is told %s", tracker.Confirmed(), r.confirmed())
		}
	}
	r, tracker := begun(t, reg, server(100))
	r.copied()
	if err := r.record(t.Context()); err != nil { // although no position is new
		t.Fatal(err)
	}
	if p := reg.position(t); p.Copying || p.EndLSN != 100 {
		t.Errorf("recorded is %+v", p)
	}
	deliver(tracker, 200)
	if err := r.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, _ := begun(t, reg, server(100)); again.copying() {
		t.Error("the copy is to be made again")
	}
}

// Whoever accepts a gap goes on without the rest of a copy; a slot made anew has no gap.
func TestGapOfACopy(t *testing.T) {
	reg := &scriptedRegister{}
	first := newRecorder(reg, true, slog.New(slog.DiscardHandler))
	if err := first.intend(t.Context(), "1", "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.resume(t.Context(), server(100)); err != nil || !first.copying() {
		t.Errorf("the copy of a slot made now is given up: %v", err)
	}
	r := newRecorder(reg, true, slog.New(slog.DiscardHandler))
	if err := r.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.resume(t.Context(), server(100)); err != nil || r.copying() {
		t.Errorf("the copy is not given up: %v", err)
	}
}
