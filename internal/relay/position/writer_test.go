package position_test

import (
	"bytes"
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
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

func newTestWriter(t *testing.T, store *positiontest.Store, acceptGap bool) *position.Positions {
	t.Helper()
	return positiontest.New(t, store, func(c *position.Config) { c.AcceptGap = acceptGap })
}

// The relay confirms a position to Postgres only after Kafka has acknowledged the position record. A call of
// Confirmed triggers the next write.
func TestPositionWriterConfirmsOnlyWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &positiontest.Store{}
		w, tracker := positiontest.Started(t, store, positiontest.Server(100))
		store.Allow = make(chan error)
		stop := positiontest.Run(t, w)
		want := func(lsn pglogrepl.LSN) {
			t.Helper()
			synctest.Wait()
			if got := w.Writer.Confirmed(); got != lsn {
				t.Errorf("confirmed to Postgres is %s, want %s", got, lsn)
			}
		}
		synctest.Wait()
		positiontest.Deliver(tracker, 200)
		want(0) // not even the slot's own position is recorded
		store.Allow <- nil
		want(100) // triggers a write
		store.Allow <- nil
		want(200)
		if p := store.Position(t); p.EndLSN != 200 || p.SystemID != "1" || p.Slot != "s" || p.Timeline != 1 {
			t.Errorf("recorded %+v", p)
		}
		positiontest.Deliver(tracker, 300)
		positiontest.Deliver(tracker, 400)
		synctest.Wait()
		if store.Writes != 3 { // the first one begins the ownership
			t.Errorf("%d writes without a call of Confirmed", store.Writes)
		}
		want(200) // triggers a write
		store.Allow <- nil
		want(400)
		stop()
	})
}

func TestPositionWriterWritesAPositionOnce(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, w)
	if got := w.Writer.Confirmed(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if wrote, err := w.Writer.Write(t.Context()); err != nil || wrote || store.Writes != 2 { // the first one begins the ownership
		t.Errorf("%d records of one position, %v", store.Writes-1, err)
	}
}

// If the store fails, the session ends. A blocked write ends with its context.
func TestPositionWriterFailsWithItsStore(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	store.Allow = make(chan error, 1)
	positiontest.Deliver(tracker, 200)
	store.Allow <- errors.New("refused")
	if err := w.Writer.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "record the position 0/C8: refused") {
		t.Errorf("Run returns %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if _, err := w.Writer.Write(ctx); !errors.Is(err, over) {
		t.Errorf("record returns %v", err)
	}
	if got := w.Writer.Confirmed(); got != 0 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
}

// When a standby gets the slot, it starts at the last position that the previous relay recorded. If the slot is
// ahead of that position, there is a gap.
func TestPositionWriterContinuesTheRecordOfAnotherProcess(t *testing.T) {
	store := &positiontest.Store{}
	active, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Write(t, active)
	positiontest.Deliver(tracker, 500)
	positiontest.Write(t, active)
	advanced := store.Position(t).AdvancedAt
	standby := newTestWriter(t, store, false)
	positiontest.Begin(t, standby, positiontest.Server(400))
	if p := standby.Record.Stored(); advanced.IsZero() || !p.AdvancedAt.Equal(advanced) || !p.WrittenAt.After(advanced) {
		t.Errorf("advanced at %s, and according to the standby at %s; written at %s", advanced, p.AdvancedAt, p.WrittenAt)
	}
	start, err := standby.Starter.ChooseStart(t.Context(), positiontest.Server(400))
	if start != 500 || err != nil {
		t.Errorf("the standby starts at %s, %v", start, err)
	}
	_, err = standby.Starter.ChooseStart(t.Context(), positiontest.Server(501))
	if !isGap(err) {
		t.Errorf("a slot ahead of the record: %v", err)
	}
}

// When another process has become the owner, the first one cannot write any more. It finds out before it continues.
func TestPositionWriterIsShutOut(t *testing.T) {
	store := &positiontest.Store{}
	first, before := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Write(t, first)
	if err := first.Recorder.ProveOwner(t.Context()); err != nil {
		t.Errorf("alone: %v", err)
	}
	second, after := positiontest.Started(t, store, positiontest.Server(100))
	if p := store.Position(t); p.Owner != 2 || p.EndLSN != 100 {
		t.Errorf("the second ownership begins with %+v", p)
	}
	positiontest.Deliver(after, 300)
	positiontest.Write(t, second)
	positiontest.Deliver(before, 200)
	if _, err := first.Writer.Write(t.Context()); !errors.Is(err, sink.ErrSuperseded) {
		t.Errorf("a late write of the first: %v", err)
	}
	if err := first.Recorder.ProveOwner(t.Context()); !errors.Is(err, sink.ErrSuperseded) {
		t.Errorf("the first may continue: %v", err)
	}
	if err := second.Recorder.ProveOwner(t.Context()); err != nil || store.Position(t).EndLSN != 300 || second.Record.CanContinue(positiontest.Server(100)) != nil || !isGap(second.Record.CanContinue(positiontest.Server(301))) {
		t.Errorf("the second has %+v, %v", store.Position(t), err)
	}
	third, _ := positiontest.Started(t, store, positiontest.Server(100))
	if p := third.Record.Stored(); p.Owner != 3 || p.EndLSN != 300 {
		t.Errorf("the third ownership begins with %+v", p)
	}
}

// The previous owner may write until there is a new one. An ownership begins with the last record that it has written.
func TestPositionWriterReadsWhatIsWrittenLast(t *testing.T) {
	store := &positiontest.Store{}
	first, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Write(t, first)
	second := newTestWriter(t, store, false)
	store.OnOwn = func() {
		positiontest.Deliver(tracker, 200)
		positiontest.Write(t, first)
	}
	positiontest.Begin(t, second, positiontest.Server(100))
	if p := second.Record.Stored(); p.EndLSN != 200 || p.Owner != 2 {
		t.Errorf("the ownership begins with %+v", p)
	}
}

// A process proves that it is the owner while it writes a position: the record does not go back.
func TestPositionWriterProvesWhileItWrites(t *testing.T) {
	for _, provesFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &positiontest.Store{}
			w, tracker := positiontest.Started(t, store, positiontest.Server(100))
			positiontest.Write(t, w)
			store.Allow = make(chan error)
			positiontest.Deliver(tracker, 200)
			both := []func(){
				func() { positiontest.Write(t, w) },
				func() {
					if err := w.Recorder.ProveOwner(t.Context()); err != nil {
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
			store.Allow <- nil
			store.Allow <- nil
			running.Wait()
			if got := store.Position(t).EndLSN; got != 200 || w.Writer.Confirmed() != 200 {
				t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.Writer.Confirmed())
			}
		})
	}
}

// If a relay is connected to the wrong server, it reports a gap before it shuts out another relay.
func TestPositionWriterRefusesAWrongServer(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, w)
	other, older := positiontest.Server(200), positiontest.Server(200)
	other.SystemID, older.WALEnd = "2", 150
	for name, tc := range map[string]struct {
		server  checkpoint.Server
		refused bool
	}{
		"as it was":      {positiontest.Server(200), false},
		"behind":         {positiontest.Server(100), false},
		"ahead":          {positiontest.Server(300), true},
		"another system": {other, true},
		"an older copy":  {older, true},
	} {
		for _, acceptGap := range []bool{false, true} {
			next := newTestWriter(t, store, acceptGap)
			found, err := next.Recorder.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Starter.Check(t.Context(), found, tc.server, func(string) error { return nil }); isGap(err) != (tc.refused && !acceptGap) {
				t.Errorf("%s, accept gap %t: %v", name, acceptGap, err)
			}
		}
	}
}

// If the store loses its values while the process runs, the process writes them again.
func TestPositionWriterOutlivesItsStore(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, w)
	store.Values = nil
	positiontest.Begin(t, w, positiontest.Server(200))
	if p := store.Position(t); p.EndLSN != 200 || p.Owner != 2 {
		t.Errorf("the ownership begins with %+v", p)
	}
}

// The position record describes a partially delivered transaction. The next process continues within it.
func TestPositionWriterRecordsTheOpenTransaction(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
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
	positiontest.Write(t, w)
	if p := store.Position(t); p.EndLSN != 100 || p.Open.CommitLSN != 300 || p.Open.Rows != 256 {
		t.Fatalf("the record is %+v", p)
	}
	if wrote, err := w.Writer.Write(t.Context()); wrote || err != nil {
		t.Errorf("written again: %t, %v", wrote, err)
	}
	if got := w.Writer.Resumable(300); got != 256 {
		t.Errorf("%d rows are resumable", got)
	}

	next, tracker := positiontest.Started(t, store, positiontest.Server(100))
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
	positiontest.Write(t, next)
	if p := store.Position(t); p.EndLSN != 310 || p.Open.Rows != 0 {
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
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	snapshot := func(lsn pglogrepl.LSN) {
		positiontest.Deliver(tracker, lsn)
		w.Writer.KeepSnapshot(checkpoint.Snapshot{EndLSN: lsn, Text: "740:745:741"})
	}
	snapshot(200)
	snapshot(300)
	positiontest.Deliver(tracker, 350)
	positiontest.Write(t, w)
	if p := store.Position(t); len(p.Snapshots) != 1 || p.Snapshots[0].EndLSN != 300 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
	snapshot(400)
	positiontest.Write(t, w)
	if p := store.Position(t); len(p.Snapshots) != 2 || p.Snapshots[0].EndLSN != 400 {
		t.Errorf("recorded %+v", p.Snapshots)
	}
}

// A position record that the relay cannot read is an error. It does not count as missing.
func TestPositionWriterRejectsARecordItCannotRead(t *testing.T) {
	for _, key := range []string{sink.PositionKey, sink.ParkedKey, "8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"} {
		store := &positiontest.Store{Values: []sink.StoredValue{{Key: key, Value: []byte(`{"version": 9}`)}}}
		_, err := newTestWriter(t, store, false).Recorder.Read(t.Context())
		if !errors.Is(err, position.ErrRecord) {
			t.Errorf("Read returns %v", err)
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
		"largest ownership":       {Key: sink.PositionKey, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500", "owner": 9223372036854775807}`)},
		"no value of any use":     {Key: sink.PositionKey, Value: []byte(`[]`)},
		"position as a request":   {Key: request, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500"}`)},
		"position as parked keys": {Key: sink.ParkedKey, Value: []byte(`{"version": 1, "system_id": "1", "slot": "s", "end_lsn": "0/500"}`)},
	} {
		var log strings.Builder
		forged.Place = "topic p, offset 7"
		store := &positiontest.Store{Values: []sink.StoredValue{forged}}
		reader := positiontest.New(t, store, func(c *position.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		for range 2 {
			found, err := reader.Recorder.Read(t.Context())
			if err != nil || found.Position != nil || found.Parked != nil || len(found.Requests) > 0 {
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
	w := positiontest.New(t, nil, func(c *position.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	positiontest.Begin(t, w, positiontest.Server(100))
	tracker := positiontest.Start(t, w, positiontest.Server(100))
	positiontest.Write(t, w)
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, w)
	if got := w.Writer.Confirmed(); got != 200 {
		t.Errorf("confirmed to Postgres is %s", got)
	}
	if err := w.Recorder.ProveOwner(t.Context()); err != nil || w.Record.CanContinue(positiontest.Server(150)) != nil || !isGap(w.Record.CanContinue(positiontest.Server(300))) {
		t.Errorf("it cannot continue: %v", err)
	}
	if start, err := w.Starter.ChooseStart(t.Context(), positiontest.Server(300)); start != 0 || err != nil || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("a slot that is ahead: starts at %s, %v, logged %s", start, err, log.String())
	}
	other := positiontest.Server(100)
	other.SystemID = "2"
	if _, err := w.Starter.ChooseStart(t.Context(), other); !isGap(err) {
		t.Errorf("another system: %v", err)
	}
}

// A write that the relay has given up may still be stored. The relay goes on.
func TestPositionWriterGoesOnAfterAWriteThatWasGivenUp(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	positiontest.Write(t, w)
	store.Allow = make(chan error)
	positiontest.Deliver(tracker, 200)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Writer.Write(ctx); err == nil {
		t.Fatal("the write did not fail")
	}
	given := w.Record.Stored()
	given.EndLSN = 200
	store.Values[0].Value = marshal(t, given) // stored although the write failed
	store.Allow = nil
	if err := errors.Join(w.Recorder.ProveOwner(t.Context()), w.Record.CanContinue(positiontest.Server(100))); err != nil {
		t.Errorf("it cannot continue: %v", err)
	}
	positiontest.Write(t, w)
	if got := store.Position(t).EndLSN; got != 200 || w.Writer.Confirmed() != 200 {
		t.Errorf("recorded is %s, confirmed to Postgres is %s", got, w.Writer.Confirmed())
	}
}

// An ownership that starts at the recorded position keeps the record's generation. If it starts elsewhere or on another
// timeline, it uses a new generation.
func TestPositionWriterStartsANewGeneration(t *testing.T) {
	store := &positiontest.Store{}
	promoted := positiontest.Promoted(10_000, 100)
	for n, tc := range []struct {
		server checkpoint.Server
		want   int64
	}{{positiontest.Server(100), 1}, {positiontest.Server(100), 1}, {promoted, 2}, {promoted, 2}} {
		w, tracker := positiontest.Started(t, store, tc.server)
		positiontest.Deliver(tracker, pglogrepl.LSN(200+100*n))
		positiontest.Write(t, w)
		if got := store.Position(t).Generation; got != tc.want {
			t.Errorf("ownership %d writes generation %d, want %d", n+1, got, tc.want)
		}
	}
}

// The position record says that the initial copy is not delivered yet, from before the slot exists.
func TestPositionWriterKeepsAPendingCopy(t *testing.T) {
	store := &positiontest.Store{}
	first := newTestWriter(t, store, false)
	if err := errors.Join(first.Starter.RequireNoRecord(t.Context(), "s"), first.Starter.AnnounceCopy(t.Context(), "1", "s")); err != nil {
		t.Fatal(err)
	}
	if err := first.Starter.RequireNoRecord(t.Context(), "s"); err != nil { // the process ended before it created the slot
		t.Errorf("the slot cannot be created: %v", err)
	}
	for range 2 { // the second one finds an existing slot
		w, tracker := positiontest.Started(t, store, positiontest.Server(100))
		if !w.Record.Next().Copying {
			t.Error("no copy is pending")
		}
		positiontest.Write(t, w)
		if p := store.Position(t); !p.Copying || p.EndLSN != 100 {
			t.Errorf("recorded is %+v", p)
		}
		if tracker.Confirmed() > 100 || w.Writer.Confirmed() > 100 {
			t.Errorf("confirmed %s, confirmed to Postgres is %s", tracker.Confirmed(), w.Writer.Confirmed())
		}
	}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	w.Writer.MarkCopied(checkpoint.Witness{})
	positiontest.Write(t, w) // although the position is the same
	if p := store.Position(t); p.Copying || p.EndLSN != 100 {
		t.Errorf("recorded is %+v", p)
	}
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, w)
	if again, _ := positiontest.Started(t, store, positiontest.Server(100)); again.Record.Next().Copying {
		t.Error("the copy is pending again")
	}
}

// When an operator accepts a gap, the relay skips the rest of the initial copy. A newly created slot has no gap.
func TestPositionWriterGivesUpACopyWithAnAcceptedGap(t *testing.T) {
	store := &positiontest.Store{}
	first := newTestWriter(t, store, true)
	if err := errors.Join(first.Starter.RequireNoRecord(t.Context(), "s"), first.Starter.AnnounceCopy(t.Context(), "1", "s")); err != nil {
		t.Fatal(err)
	}
	positiontest.Begin(t, first, positiontest.Server(100))
	if _, err := first.Starter.ChooseStart(t.Context(), positiontest.Server(100)); err != nil || !first.Record.Next().Copying {
		t.Errorf("the copy of a new slot is skipped: %v", err)
	}
	w := newTestWriter(t, store, true)
	positiontest.Begin(t, w, positiontest.Server(100))
	if _, err := w.Starter.ChooseStart(t.Context(), positiontest.Server(100)); err != nil || w.Record.Next().Copying {
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
					store, told := &positiontest.Store{}, pglogrepl.LSN(50)
					first, tracker := positiontest.Started(t, store, positiontest.Server(told))
					if recorded {
						positiontest.Deliver(tracker, 110)
						positiontest.Write(t, first)
						told = first.Writer.Confirmed()
					}
					standby := newTestWriter(t, store, false)
					positiontest.Begin(t, standby, positiontest.Server(told))
					if stage >= 1 {
						positiontest.Deliver(positiontest.Start(t, standby, positiontest.Server(told)), 210)
					}
					if late {
						positiontest.Deliver(tracker, 160)
						if _, err := first.Writer.Write(t.Context()); !errors.Is(err, sink.ErrSuperseded) {
							t.Errorf("the late write of the previous relay: %v", err)
						}
					}
					if stage >= 2 {
						positiontest.Write(t, standby)
					}
					if stage >= 3 {
						told = max(told, standby.Writer.Confirmed())
					}
					third := newTestWriter(t, store, false)
					positiontest.Begin(t, third, positiontest.Server(told))
					start, err := third.Starter.ChooseStart(t.Context(), positiontest.Server(told))
					if err != nil || start != 0 && start < told {
						t.Errorf("with the slot at %s the next start is at %s: %v", told, start, err)
					}
				})
			}
		}
	}
}

// A relay that reads the first bad row of a parked key again says that the key is not parked meanwhile, by its id and not by its value.
func TestParkedKeyWhoseRowIsReadAgainIsLogged(t *testing.T) {
	store, set := &positiontest.Store{}, parking.NewSet(1)
	active := positiontest.New(t, store, func(c *position.Config) { c.Parked = set })
	positiontest.Begin(t, active, positiontest.Server(100))
	positiontest.Start(t, active, positiontest.Server(100))
	positiontest.Write(t, active)
	deadLetter, _ := set.Park(parking.Key{Topic: "orders", Key: "a value"}, "bad", parking.Row{LSN: 150})
	if err := active.Parked.Store(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	next := positiontest.New(t, store, func(c *position.Config) {
		c.Parked, c.Log = parking.NewSet(1), slog.New(slog.NewTextHandler(&log, nil))
	})
	positiontest.Begin(t, next, positiontest.Server(100))
	positiontest.Start(t, next, positiontest.Server(100))
	if text := log.String(); !strings.Contains(text, "keys not parked any more") || !strings.Contains(text, "number=1 records=1 topic=orders id="+deadLetter.Parking[:8]) || strings.Contains(text, "a value") {
		t.Error(text)
	}
}

// The position topic is deleted under a relay with parked keys, and the relay is killed after it has written its position
// again and before it has stored the keys again. The next relay stops, also if it parks no keys.
func TestParkedKeysLostWithoutThePosition(t *testing.T) {
	newWriter := func(store *positiontest.Store, acceptGap bool, set *parking.Set) *position.Positions {
		return positiontest.New(t, store, func(c *position.Config) { c.AcceptGap, c.Parked = acceptGap, set })
	}
	store, set := &positiontest.Store{}, parking.NewSet(1)
	active := newWriter(store, false, set)
	positiontest.Begin(t, active, positiontest.Server(100))
	tracker := positiontest.Start(t, active, positiontest.Server(100))
	deadLetter, _ := set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 150})
	positiontest.Deliver(tracker, 200)
	positiontest.Write(t, active)
	check := func(w *position.Positions, want error) {
		t.Helper()
		found, err := w.Recorder.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Starter.Check(t.Context(), found, positiontest.Server(100), func(string) error { return nil }); !errors.Is(err, want) {
			t.Errorf("Check returns %v, want %v", err, want)
		}
	}
	check(newWriter(store, false, parking.NewSet(1)), nil)
	store.Values = nil
	positiontest.Deliver(tracker, 300)
	positiontest.Write(t, active)
	check(active, nil)
	check(newWriter(store, false, parking.NewSet(1)), position.ErrParkedLost)
	check(newTestWriter(t, store, false), position.ErrParkedLost)
	accepted := newWriter(&positiontest.Store{Values: slices.Clone(store.Values)}, true, parking.NewSet(1))
	check(accepted, nil)
	positiontest.Begin(t, accepted, positiontest.Server(300))
	positiontest.Start(t, accepted, positiontest.Server(300))
	check(accepted, nil)

	// The keys are stored again, and then released. The empty set says so.
	if err := active.Parked.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false, parking.NewSet(1)), nil)
	if err := active.Parked.Unpark(t.Context(), deadLetter.Parking); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false, parking.NewSet(1)), nil)
	next := newWriter(store, false, parking.NewSet(1))
	positiontest.Begin(t, next, positiontest.Server(300))
	positiontest.Start(t, next, positiontest.Server(300))
	if err := next.Parked.Store(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	check(newWriter(store, false, parking.NewSet(1)), nil)
}

// What was discarded is not forgotten at a start at which no key is parked.
func TestDiscardedRowsOutliveTheLastParkedKey(t *testing.T) {
	store := &positiontest.Store{}
	w, set := parkingWriter(t, store)
	set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 150})
	id := set.List()[0].ID
	set.Discard(id, parking.Discarded{Row: parking.Row{LSN: 150}, ID: "id"}, parking.Row{})
	if err := w.Parked.Unpark(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start reads what the first one has stored
		next, _ := parkingWriter(t, store)
		if err := next.Parked.Store(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	found, err := w.Recorder.Read(t.Context())
	if err != nil || found.Parked == nil || len(found.Parked.Unparked) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}

// The record says when the relay has begun to use the store, over owners and refills, until the store loses it.
func TestRecordSaysWhenItBegan(t *testing.T) {
	store := &positiontest.Store{}
	begin := func() checkpoint.Position {
		w := newTestWriter(t, store, false)
		positiontest.Begin(t, w, positiontest.Server(100))
		found, err := w.Recorder.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return *found.Position
	}
	first := begin()
	if !first.Began.Equal(first.WrittenAt) {
		t.Errorf("began at %s, written at %s", first.Began, first.WrittenAt)
	}
	if p := begin(); !p.Began.Equal(first.Began) || !p.BeginRefill(positiontest.Server(100), 100, "", false).Began.Equal(first.Began) {
		t.Errorf("%s after %s", p.Began, first.Began)
	}
	store.Values = nil
	if p := begin(); !p.Began.After(first.Began) {
		t.Errorf("%s after %s", p.Began, first.Began)
	}
}

// A topic that was re-created may have another value at the same place. It is not taken for the earlier one.
func TestParkedStoreParsesAnotherValueAtAPlace(t *testing.T) {
	store := &positiontest.Store{}
	s := positiontest.Open(t, store, slog.New(slog.NewTextHandler(t.Output(), nil)))
	for generation := range int64(3) {
		rec := parking.Record{Parkings: []parking.Parking{{ID: uuid.NewString(), Generation: generation}}}
		value, err := rec.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		store.Values = []sink.StoredValue{{Place: "positions/0:7", Key: sink.ParkedKey, Value: value}}
		found, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found.Parked == nil || found.Parked.Parkings[0].Generation != generation {
			t.Errorf("found %+v, want generation %d", found.Parked, generation)
		}
	}
}

// Whoever loses the position record but not the set of parked keys goes on in a later generation than any key of the set. Otherwise the
// relay would take its own dead letters of these keys for earlier ones, which a release leaves out.
func TestParkedKeysOutliveThePositionRecord(t *testing.T) {
	store := &positiontest.Store{}
	key := parking.Key{Topic: "orders", Key: "k"}
	w, set := parkingWriter(t, store)
	set.Park(key, "bad", parking.Row{LSN: 150})
	positiontest.Write(t, w)
	for range 2 { // the second relay finds what the first one has written before it crashed
		store.Values = slices.DeleteFunc(store.Values, func(v sink.StoredValue) bool { return v.Key == sink.PositionKey })
		_, set = parkingWriter(t, store)
		parked, ok := set.Find(set.List()[0].ID)
		deadLetter, _, follows := set.Follow(key.Topic, []byte(key.Key), parking.Row{LSN: 120})
		if !ok || !follows || !parked.Follows(deadLetter.Place) {
			t.Errorf("parked is %+v, the next dead letter is at %s and follows: %t", parked, deadLetter.Place, follows)
		}
	}
	_, set = parkingWriter(t, store)
	if set.Empty() {
		t.Error("a relay that found the first record of the one before has dropped the key")
	}
}

// parkingWriter returns the writer of another process that parks keys, and its set.
func parkingWriter(t *testing.T, store *positiontest.Store) (*position.Positions, *parking.Set) {
	t.Helper()
	set := parking.NewSet(1)
	w, _ := positiontest.Started(t, store, positiontest.Server(100), func(c *position.Config) { c.Parked = set })
	return w, set
}

func isGap(err error) bool {
	_, ok := errors.AsType[*checkpoint.GapError](err)
	return ok
}
