package checkpoint

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "run TestTrackerEqualsItsModel with this seed only")
	historiesFlag = flag.Int("histories", 2000, "how many random histories TestTrackerEqualsItsModel runs")
)

type eventKind int

const (
	begin eventKind = iota
	record
	commit
	keepalive
)

type event struct {
	kind     eventKind
	lsn      pglogrepl.LSN // commit LSN, end LSN or WAL end
	seq      Seq
	time     time.Time // of a Begin
	snapshot string    // of a Commit
	trace    byte      // of a record; 0: none
}

// A model is a simple implementation of Tracker. It keeps every event, and searches all of them for each result.
type model struct {
	start pglogrepl.LSN
	log   []event
	acked map[Seq]bool
}

func (m *model) confirmed() pglogrepl.LSN {
	confirmed, open := m.start, false
	for _, e := range m.log {
		switch {
		case e.kind == record && !m.acked[e.seq]:
			return confirmed
		case e.kind == commit, e.kind == keepalive && !open:
			confirmed = max(confirmed, e.lsn)
		}
		open = e.kind == begin || open && e.kind != commit
	}
	return confirmed
}

// passed returns the last transaction with a record or a snapshot that ends at or before the confirmed position.
func (m *model) passed() (last Landmark) {
	confirmed, began, counts := m.confirmed(), Landmark{}, false
	for _, e := range m.log {
		switch {
		case e.kind == begin:
			began, counts = Landmark{e.lsn, e.time.UnixMicro()}, false
		case e.kind == record:
			counts = true
		case e.kind == commit && (counts || e.snapshot != "") && e.lsn <= confirmed:
			last = began
		}
	}
	return last
}

func (m *model) outstanding() (seqs []Seq) {
	for _, e := range m.log {
		if e.kind == record && !m.acked[e.seq] {
			seqs = append(seqs, e.seq)
		}
	}
	return seqs
}

func (m *model) records() (n int) {
	for _, e := range m.log {
		if e.kind == record {
			n++
		}
	}
	return n
}

func (m *model) locate(seq Seq) (commitLSN pglogrepl.LSN, index int, ok bool) {
	for _, e := range m.log {
		switch {
		case e.kind == begin:
			commitLSN, index = e.lsn, 0
		case e.kind == record && e.seq == seq:
			return commitLSN, index, !m.acked[seq]
		case e.kind == record:
			index++
		}
	}
	return 0, 0, false
}

// confirmedTransactions returns the confirmed transactions with records, the newest confirmed
// snapshot, and the commit time of the oldest transaction with records that is not confirmed.
func (m *model) confirmedTransactions() (out []Transaction, newest Snapshot, oldest time.Time) {
	tx, records, acked := Transaction{}, false, true
	waits := func() { // for an unacknowledged record, or behind one
		if records && !acked && oldest.IsZero() {
			oldest = tx.CommitTime
		}
	}
	for _, e := range m.log {
		switch e.kind {
		case begin:
			tx, records = Transaction{CommitTime: e.time}, false
		case record:
			records, acked = true, acked && m.acked[e.seq]
			if tx.TraceID == ([16]byte{}) {
				tx.TraceID[0] = e.trace
			}
			waits()
		case commit:
			waits()
			if acked && records {
				out = append(out, tx)
			}
			if acked && e.snapshot != "" {
				newest = Snapshot{EndLSN: e.lsn, Text: e.snapshot}
			}
			records = false
		case keepalive:
		}
	}
	if records && oldest.IsZero() {
		oldest = tx.CommitTime // acknowledged, but its commit is not read
	}
	return out, newest, oldest
}

func (m *model) open() (commitLSN pglogrepl.LSN, acked int, ok bool) {
	gap := false
	for _, e := range m.log {
		switch {
		case e.kind == begin:
			commitLSN, acked, ok, gap = e.lsn, 0, true, false
		case e.kind == commit:
			commitLSN, acked, ok = 0, 0, false
		case e.kind == record && !m.acked[e.seq]:
			gap = true
		case e.kind == record && !gap:
			acked++
		}
	}
	return commitLSN, acked, ok
}

// A history turns bytes into operations, applies each to a Tracker and to the model, and
// compares the two.
type history struct {
	tb        testing.TB
	name      string
	ops       []byte
	tracker   *Tracker
	model     *model
	wal       pglogrepl.LSN // the end of the server's WAL
	end       pglogrepl.LSN // end LSN of the open transaction
	seen      map[pglogrepl.LSN]bool
	before    pglogrepl.LSN // confirmed before the last operation
	collected []Transaction // confirmed transactions with records
	newest    Snapshot      // newest confirmed snapshot

	snapshots, traces int // number of calls
}

// collect is the Tracker's onConfirmed.
func (h *history) collect(tx Transaction) {
	if s := tx.Snapshot; s.Text != "" {
		if s.EndLSN <= h.newest.EndLSN || s.EndLSN > h.tracker.Confirmed() {
			h.tb.Fatalf("%s: snapshot of %s confirmed behind that of %s, at %s", h.name, s.EndLSN, h.newest.EndLSN, h.tracker.Confirmed())
		}
		h.newest, tx.Snapshot = s, Snapshot{}
		h.newest.CommitTime = time.Time{} // the model does not know it
	}
	if !tx.CommitTime.IsZero() {
		h.collected = append(h.collected, tx)
	}
}

func playHistory(tb testing.TB, name string, ops []byte) {
	tb.Helper()
	h := &history{tb: tb, name: name, ops: ops, wal: 1000, seen: map[pglogrepl.LSN]bool{}}
	start := pglogrepl.LSN(h.draw()) * 8 // also 0, also beyond the first commits
	h.tracker, h.model, h.before = New(start, h.collect), &model{start: start, acked: map[Seq]bool{}}, start
	h.seen[start] = true
	for len(h.ops) > 0 {
		h.step()
		h.compare()
	}
}

// draw returns the next byte, or zero if none is left.
func (h *history) draw() byte {
	if len(h.ops) == 0 {
		return 0
	}
	b := h.ops[0]
	h.ops = h.ops[1:]
	return b
}

func (h *history) step() {
	op := h.draw()
	_, _, open := h.model.open()
	switch {
	case op < 64 && !open:
		h.wal += pglogrepl.LSN((op & 3) * 8) // 0: the commit record starts where the previous one ends
		at := time.UnixMicro(int64(h.wal))
		h.must(h.tracker.Begin(h.wal, at))
		h.model.log = append(h.model.log, event{kind: begin, lsn: h.wal, time: at})
		h.end = h.wal + 8
	case op < 64:
		h.wal = h.end
		e := event{kind: commit, lsn: h.end}
		if lsn, _, _ := h.model.open(); op&7 == 7 && h.snapshots < maxSnapshotsInFlight && lsn >= h.before {
			h.snapshots++
			e.snapshot = "1:1:"
			h.tracker.Snapshot(Snapshot{Text: e.snapshot})
		}
		h.must(h.tracker.Commit(h.end))
		h.read(e)
	case op < 112:
		walEnd := h.wal + pglogrepl.LSN(op&7)
		if op&8 != 0 {
			walEnd = h.wal - pglogrepl.LSN(op) // the server reads old WAL
		}
		h.must(h.tracker.Keepalive(walEnd))
		h.read(event{kind: keepalive, lsn: walEnd})
		if !open {
			h.wal = max(h.wal, walEnd)
		}
	case op < 176 && open:
		for range op & 7 {
			if lsn, _, _ := h.model.open(); lsn < h.before { // confirmed before the start
				if seq := h.next(); seq != 0 {
					h.tb.Fatalf("%s: a row of a confirmed transaction is numbered %d", h.name, seq)
				}
				continue
			}
			if op&16 != 0 { // the sink rejects the first attempt to send the record
				h.next()
				h.tracker.Cancel()
			}
			e := event{kind: record, seq: h.next()}
			if op&8 != 0 && h.traces < maxTraces {
				h.traces++
				e.trace = op
				h.tracker.Trace([16]byte{op})
			}
			h.model.log = append(h.model.log, e)
		}
	case op >= 240:
		for range op & 3 { // sessions that end early
			h.reread(int(h.draw()) % 8)
		}
		h.reread(len(h.model.log))
	default:
		h.ack(op)
	}
}

func (h *history) must(err error) {
	if err != nil {
		h.tb.Fatalf("%s: %v", h.name, err)
	}
}

func (h *history) next() Seq {
	seq, err := h.tracker.Next(row)
	h.must(err)
	return seq
}

// reread simulates a new session. It reads events again from the confirmed position, or from where the slot was before a crash, at most
// the given number, and may end inside a transaction. Some records are acknowledged in between.
func (h *history) reread(most int) {
	from, sent := h.tracker.Confirmed(), false
	if open, _, ok := h.model.open(); ok {
		from = min(from, open)
	}
	from -= min(from, pglogrepl.LSN(h.draw()))
	h.tracker.Reread(from)
	for _, e := range h.model.log {
		if e.kind == begin {
			sent = e.lsn >= from
		}
		switch {
		case !sent || most == 0 || e.kind == keepalive:
			continue
		case e.kind == begin:
			h.must(h.tracker.Begin(e.lsn, e.time))
		case e.kind == record:
			if seq := h.next(); seq != 0 {
				h.tb.Fatalf("%s: record %d, read again, is numbered %d", h.name, e.seq, seq)
			}
		case e.kind == commit:
			h.must(h.tracker.Commit(e.lsn))
		}
		if most--; h.draw() > 200 {
			h.ack(1)
		}
	}
}

func (h *history) read(e event) {
	h.model.log = append(h.model.log, e)
	h.seen[e.lsn] = true
}

// ack acknowledges up to seven outstanding records: the oldest, the newest or random
// ones.
func (h *history) ack(op byte) {
	var seqs []Seq
	left := h.model.outstanding()
	for n := op & 7; n > 0 && len(left) > 0; n-- {
		i := 0
		switch op >> 3 & 3 {
		case 0:
		case 1:
			i = len(left) - 1
		default:
			i = int(h.draw()) % len(left)
		}
		seqs = append(seqs, left[i])
		h.model.acked[left[i]] = true
		left = append(left[:i], left[i+1:]...)
	}
	if err := h.tracker.Ack(seqs...); err != nil {
		h.tb.Fatalf("%s: Ack(%v): %v", h.name, seqs, err)
	}
}

func (h *history) compare() {
	h.tb.Helper()
	got, want := h.tracker.Confirmed(), h.model.confirmed()
	if got != want {
		h.tb.Fatalf("%s: Confirmed() = %s, want %s\nafter %+v\nacknowledged %v", h.name, got, want, h.model.log, h.model.acked)
	}
	if got < h.before || !h.seen[got] {
		h.tb.Fatalf("%s: Confirmed() = %s after %s: lower, or not a position that was read", h.name, got, h.before)
	}
	h.before = got

	if _, last := h.tracker.Passed(); last != h.model.passed() && (last != Landmark{} || h.model.passed().CommitLSN >= h.model.start) { // before the start it may be unknown
		h.tb.Fatalf("%s: the last transaction before %s is %s, want %s", h.name, got, last, h.model.passed())
	}

	left := h.model.outstanding()
	if got, want := h.tracker.Outstanding(), len(left); got != want {
		h.tb.Fatalf("%s: Outstanding() = %d, want %d", h.name, got, want)
	}
	last, window := h.model.records(), 0
	if len(left) > 0 {
		window = last - int(left[0]) + 1
	}
	if got := h.tracker.Window(); got != window {
		h.tb.Fatalf("%s: Window() = %d, want %d", h.name, got, window)
	}
	taken, newest, oldest := h.model.confirmedTransactions()
	if !slices.Equal(h.collected, taken) || h.newest != newest {
		h.tb.Fatalf("%s: confirmed %v and snapshot %v, want %v and %v", h.name, h.collected, h.newest, taken, newest)
	}
	if got := h.tracker.OldestCommitTime(); !got.Equal(oldest) {
		h.tb.Fatalf("%s: OldestCommitTime() = %s, want %s", h.name, got, oldest)
	}
	h.compareLookups(Seq(last))
}

// compareLookups compares OpenTransaction, Locate, and a failing Ack for one record number, which may be invalid.
func (h *history) compareLookups(last Seq) {
	h.tb.Helper()
	lsn, n, ok := h.tracker.OpenTransaction()
	wantLSN, wantN, wantOK := h.model.open()
	if lsn != wantLSN || n != wantN || ok != wantOK {
		h.tb.Fatalf("%s: OpenTransaction() = %s, %d, %t, want %s, %d, %t", h.name, lsn, n, ok, wantLSN, wantN, wantOK)
	}

	seq := Seq(len(h.ops)) * 7 % (last + 2)
	lsn, n, ok = h.tracker.Locate(seq)
	wantLSN, wantN, wantOK = h.model.locate(seq)
	if ok != wantOK || ok && (lsn != wantLSN || n != wantN) {
		h.tb.Fatalf("%s: Locate(%d) = %s, %d, %t, want %s, %d, %t", h.name, seq, lsn, n, ok, wantLSN, wantN, wantOK)
	}
	if !wantOK {
		if err := h.tracker.Ack(seq); err == nil {
			h.tb.Fatalf("%s: Ack(%d) = nil for a record that is not outstanding", h.name, seq)
		}
	}
}

func TestTrackerEqualsItsModel(t *testing.T) {
	if *seedFlag != 0 {
		playSeed(t, *seedFlag)
		return
	}
	first := rand.Uint64()
	for i := range *historiesFlag {
		playSeed(t, first+uint64(i))
	}
}

// playSeed plays a random history. One in eight is long enough for the ring buffers to
// grow.
func playSeed(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	n := 20 + rng.IntN(150)
	if rng.IntN(64) == 0 {
		n *= 10
	}
	ops := make([]byte, n)
	for i := range ops {
		ops[i] = byte(rng.UintN(256))
	}
	playHistory(t, fmt.Sprintf("seed %d", seed), ops)
}

func FuzzTracker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 113, 1, 180})                              // begin, next, commit, ack
	f.Add([]byte{0, 1, 117, 1, 0, 114, 0, 64, 190, 9, 1, 180})    // two adjacent transactions, keepalive, acks
	f.Add([]byte{255, 3, 64, 115, 66, 177, 1, 68, 176, 183, 191}) // keepalives inside and after a transaction
	f.Fuzz(func(t *testing.T, ops []byte) {
		playHistory(t, "fuzz", ops[:min(len(ops), 4096)]) // the model takes quadratic time
	})
}
