package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A wire plays what passes between a server and a relay, one step a second.
type wire struct {
	*Confirms
	s   *Session
	now time.Time
}

func (w *wire) tick() time.Time {
	w.now = w.now.Add(time.Second)
	return w.now
}

func (w *wire) start(from pglogrepl.LSN)   { w.s = w.Start(w.tick(), from) }
func (w *wire) slot(at pglogrepl.LSN)      { w.Slot(w.tick(), at) }
func (w *wire) status(flush pglogrepl.LSN) { w.s.Status(w.tick(), flush) }

func (w *wire) stored(seqs ...int64) {
	for _, seq := range seqs {
		w.Stored(numbered(seq), delivery.Coordinates{Topic: "t", Offset: seq}, w.tick())
	}
}

func numbered(seq int64) Event { return Event{Run: "run", Aggregate: "a", Seq: seq, Tx: tx(byte(seq))} }

// transaction streams one with rows of the given numbers, from commit to end.
func (w *wire) transaction(commit, end pglogrepl.LSN, seqs ...int64) {
	w.rows(commit, seqs...)
	w.s.Commit(end)
}

func (w *wire) rows(commit pglogrepl.LSN, seqs ...int64) {
	w.s.Begin(commit)
	for _, seq := range seqs {
		w.s.Row(numbered(seq))
	}
}

func TestConfirms(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(w *wire)
		want []delivery.Kind
	}{
		"the end of the stored prefix": {play: func(w *wire) {
			w.status(0)
			w.transaction(100, 110, 1, 2)
			w.transaction(120, 130, 3)
			w.stored(1, 2)
			w.status(110)
			w.status(110)
			w.stored(3)
			w.status(130)
		}},
		"an empty transaction": {play: func(w *wire) {
			w.transaction(100, 110)
			w.status(110)
		}},
		"a keepalive when nothing is open": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.s.Keepalive(140)
			w.stored(1)
			w.status(140)
		}},
		"a keepalive in a transaction, at its commit record": {play: func(w *wire) {
			w.s.Keepalive(100)
			w.rows(100, 1)
			w.status(100)
			w.s.Commit(110)
			w.stored(1)
			w.status(110)
		}},
		"adjacent commits": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(110, 120, 2)
			w.stored(1)
			w.status(110)
			w.stored(2)
			w.status(120)
		}},
		"streamed again after the slot went back": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(120, 130, 2)
			w.stored(1)
			w.status(110)
			w.start(0)
			w.transaction(100, 110, 1)
			w.status(110)
			w.transaction(120, 130, 2)
			w.stored(2)
			w.status(130)
		}},
		"a lost slot, whose rows are refilled": {play: func(w *wire) {
			w.slot(90)
			w.rows(100, 1)
			w.SlotLost()
			w.slot(150) // another program's
			w.SlotCreated(200)
			w.start(0)
			w.stored(1)
			w.slot(200)
			w.status(200)
		}},
		"a row that passes the proxy after its refill": {play: func(w *wire) {
			w.rows(100, 1)
			w.SlotLost()
			w.stored(1, 2)
			w.s.Row(numbered(2))
			w.SlotCreated(200)
			w.start(0)
			w.status(200)
		}},
		"a lost slot, one row of which is never refilled": {play: func(w *wire) {
			w.rows(100, 1, 2)
			w.SlotLost()
			w.SlotCreated(200)
			w.start(0)
			w.stored(1)
			w.status(200)
		}, want: []delivery.Kind{Never}},
		"a refill that lasts": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.stored(1)
			w.SlotLost()
			w.now = w.now.Add(maxLag)
			w.status(0)
			w.SlotCreated(200)
			w.start(0)
			w.now = w.now.Add(maxLag)
			w.status(0)
			w.status(200)
			w.transaction(210, 220, 2)
			w.stored(2)
			w.status(200)
		}},
		"late after a refill": {play: func(w *wire) {
			w.SlotLost()
			w.SlotCreated(200)
			w.start(0)
			w.status(200)
			w.transaction(210, 220, 2)
			w.stored(2)
			w.now = w.now.Add(maxLag)
			w.status(200)
		}, want: []delivery.Kind{Late}},
		"a new slot, which has advanced": {play: func(w *wire) {
			w.SlotLost()
			w.SlotCreated(200)
			w.slot(210)
		}, want: []delivery.Kind{Moved}},
		"resumed in the middle of a transaction": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.rows(120, 2)
			w.stored(1, 2)
			w.start(110)
			w.transaction(120, 130, 2, 3)
			w.stored(3)
			w.status(130)
		}},
		"confirmed and seen by the reader later": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			stored := w.tick()
			w.status(110)
			w.Stored(numbered(1), delivery.Coordinates{}, stored)
		}},
		"the slot is where it was put, or lower": {play: func(w *wire) {
			w.Slot(w.now, 90)
			w.transaction(100, 110, 1)
			w.stored(1)
			w.status(110)
			w.Slot(w.now, 110)
			w.Slot(w.now, 50)
		}},
		"stored a moment later": {want: []delivery.Kind{Early}, play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.status(110)
			w.stored(1)
		}},
		"the last row stored a moment later, as is seen at once": {want: []delivery.Kind{Early}, play: func(w *wire) {
			w.transaction(100, 110, 1, 2)
			w.stored(1)
			claimed := w.tick()
			w.stored(2)
			w.s.Status(claimed, 110)
		}},
		"never stored": {want: []delivery.Kind{Never}, play: func(w *wire) {
			w.transaction(100, 110, 1, 2)
			w.stored(1)
			w.status(110)
		}},
		"the highest acknowledged, not the prefix": {want: []delivery.Kind{Early}, play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(120, 130, 2)
			w.stored(2)
			w.status(130)
			w.stored(1)
		}},
		"a keepalive while data is queued": {want: []delivery.Kind{Early}, play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.s.Keepalive(140)
			w.status(140)
			w.stored(1)
		}},
		"a transaction of which not everything was read": {want: []delivery.Kind{Early}, play: func(w *wire) {
			w.s.Keepalive(105)
			w.rows(100, 1)
			w.stored(1)
			w.status(105)
		}},
		"one byte more":          {want: []delivery.Kind{Unread}, play: func(w *wire) { w.transaction(100, 110, 1); w.stored(1); w.status(111) }},
		"the commit record":      {want: []delivery.Kind{Unread}, play: func(w *wire) { w.transaction(100, 110, 1); w.stored(1); w.status(100) }},
		"far ahead":              {want: []delivery.Kind{Unread}, play: func(w *wire) { w.status(1 << 24) }},
		"started far ahead":      {want: []delivery.Kind{Unread}, play: func(w *wire) { w.start(1 << 24) }},
		"started behind the gap": {want: []delivery.Kind{Never}, play: func(w *wire) { w.transaction(100, 110, 1); w.start(110) }},
		"started ahead of the record": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(110, 120, 2)
			w.stored(1, 2)
			w.start(120)
			w.status(110)
			w.status(120)
		}},
		"back": {want: []delivery.Kind{WentBack}, play: func(w *wire) {
			w.transaction(100, 110)
			w.transaction(120, 130)
			w.status(130)
			w.status(110)
		}},
		"stored long ago": {want: []delivery.Kind{Late}, play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(120, 130, 2)
			w.stored(1, 2)
			w.now = w.now.Add(time.Minute)
			w.status(110)
		}},
		"stored long ago, in an outage": {play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.transaction(120, 130, 2)
			w.stored(1, 2)
			over := w.Outage()
			w.now = w.now.Add(time.Minute)
			w.status(110)
			over(w.now)
			w.now = w.now.Add(time.Second)
			w.status(110)
			w.status(130)
		}},
		"stored long ago, and an outage is long over": {want: []delivery.Kind{Late}, play: func(w *wire) {
			w.transaction(100, 110, 1)
			w.stored(1)
			w.Outage()(w.now)
			w.now = w.now.Add(time.Minute)
			w.status(0)
			w.status(110)
		}},
		"somebody else moved the slot": {want: []delivery.Kind{Moved}, play: func(w *wire) {
			w.Slot(w.now, 90)
			w.transaction(100, 110, 1)
			w.Slot(w.now, 110)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{Confirms: NewConfirms(NewJournal(nil)), now: epoch}
			w.start(0)
			tc.play(w)
			w.Finish()
			found, _ := w.Violations()
			var got []delivery.Kind
			for _, v := range found {
				got = append(got, v.Kind)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%v", diff, texts(found))
			}
		})
	}
}

// A violation names transaction, position, record and time.
func TestConfirmsNames(t *testing.T) {
	w := &wire{Confirms: NewConfirms(NewJournal(nil)), now: epoch}
	w.start(0)
	w.transaction(100, 110, 7)
	w.status(110)
	w.stored(7)
	found, _ := w.Violations()
	want := []Violation{{
		Violation: delivery.Violation{
			Kind: Early, Record: delivery.Coordinates{Topic: "t", Offset: 7}, Aggregate: "a", Seq: 7, Tx: tx(7),
			Detail: "position 0/6E was confirmed; the record was stored 1s later",
		},
		LSN: 100, At: epoch.Add(2 * time.Second),
	}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// What the server streams again is counted, row by row.
func TestAgain(t *testing.T) {
	w := &wire{Confirms: NewConfirms(NewJournal(nil)), now: epoch}
	w.start(0)
	w.transaction(100, 110, 1, 2)
	w.transaction(140, 150, 3)
	w.rows(160, 4)
	w.stored(1, 2)
	w.status(110)
	if n := w.Again(); n != 0 {
		t.Errorf("%d rows were streamed again", n)
	}
	w.start(0)
	w.transaction(100, 110, 1, 2)
	w.transaction(140, 150, 3)
	w.transaction(160, 170, 4, 5)
	if n := w.Again(); n != 4 {
		t.Errorf("%d rows were streamed again, want 4", n)
	}
}
