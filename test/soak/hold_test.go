package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// With a broker that does not say when it has stored a record, a position waits for the reader. A record is early if the
// reader has not found it by then, however late it reads one that was stored in time.
func TestPositionsWaitForTheReader(t *testing.T) {
	c := NewConfirms(NewJournal(nil))
	var stored []int64 // in the broker, and not yet read
	reads := 0
	read := func() {
		reads++
		for _, seq := range stored {
			c.Stored(numbered(seq), delivery.Coordinates{Topic: "t", Offset: seq}, time.Now())
		}
		stored = nil
	}
	watch := c.watch("run", read)
	w, ok := watch(time.Now(), 0).(watcher)
	if !ok {
		t.Fatal("not a watcher")
	}
	stream := func(commit, end pglogrepl.LSN, seq int64) {
		w.Begin(commit)
		w.Row(numbered(seq))
		w.Commit(end)
	}
	stream(100, 110, 1)
	stored = append(stored, 1)
	w.Status(time.Now(), 110)
	w.Status(time.Now(), 110)
	if first, _ := c.Violations(); len(first) > 0 || reads != 1 {
		t.Errorf("%d reads, found %v", reads, first)
	}
	stream(120, 130, 2)
	w.Status(time.Now(), 130)
	stored = append(stored, 2)
	watch(time.Now(), 140) // a session that starts behind it is a new position, too
	if reads != 3 {
		t.Errorf("%d reads", reads)
	}
	first, _ := c.Violations()
	if !slices.ContainsFunc(first, func(v Violation) bool { return v.Kind == Early && v.Seq == 2 }) {
		t.Errorf("found %v", first)
	}
}

// A row may be a duplicate if it is streamed to a process that has forgotten it, or if it was in flight when the broker did
// not respond.
func TestMayRepeat(t *testing.T) {
	w := &wire{Confirms: NewConfirms(NewJournal(nil)), now: epoch}
	want := func(what string, seqs ...int64) {
		t.Helper()
		for seq := int64(1); seq <= 4; seq++ {
			if got := w.MayRepeat("a", seq); got != slices.Contains(seqs, seq) {
				t.Errorf("%s: row %d may be a duplicate: %t", what, seq, got)
			}
		}
	}
	w.start(0)
	w.transaction(100, 110, 1)
	w.stored(1)
	w.status(110)
	w.transaction(120, 130, 2)
	want("streamed")
	w.start(110)
	w.transaction(120, 130, 2)
	want("streamed again to the same process")
	w.Forgotten(w.tick())
	w.start(110)
	w.transaction(120, 130, 2)
	w.transaction(140, 150, 3)
	w.start(110)
	w.transaction(120, 130, 2)
	want("streamed to another process", 2)
	w.Unanswered()
	w.transaction(160, 170, 4)
	want("no answer", 2, 3, 4)
	for range copies - 1 {
		want("no answer", 2, 3, 4)
	}
	w.Answered()
	want("answered")
	w.stored(2)
	w.status(130)
	w.Forgotten(w.tick())
	w.start(100)
	w.transaction(120, 130, 2)
	w.transaction(140, 150, 3)
	want("confirmed", 3)

	w.stored(3)
	w.start(150) // of another connection; the position is not confirmed
	w.Forgotten(w.tick())
	w.start(100)
	w.transaction(140, 150, 3)
	want("requested, not confirmed", 3)
	w.Unanswered()
	want("no answer after a request", 3, 4)
}
