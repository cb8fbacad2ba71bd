package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// TestTrackerTakesAcksFromManyGoroutines: several goroutines acknowledge records that another one reads. The
// Tracker must not confirm a transaction while one of its records is unacknowledged.
func TestTrackerTakesAcksFromManyGoroutines(t *testing.T) {
	const transactions, perTransaction, ackers = 2000, 7, 8
	type sent struct {
		seq Seq
		end pglogrepl.LSN
	}
	tracker := New(0, nil)
	records := make(chan sent, 512)
	var wg sync.WaitGroup
	for i := range ackers {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			var held []sent
			var before pglogrepl.LSN
			release := func(i int) {
				r := held[i]
				held[i], held = held[len(held)-1], held[:len(held)-1]
				got := tracker.Confirmed()
				if got < before || got >= r.end {
					t.Errorf("Confirmed() = %s after %s with a record of the transaction to %s outstanding", got, before, r.end)
				}
				before = got
				if err := tracker.Ack(r.seq); err != nil {
					t.Error(err)
				}
			}
			for r := range records {
				if held = append(held, r); len(held) > 20 {
					release(rng.IntN(len(held)))
				}
			}
			for len(held) > 0 {
				release(rng.IntN(len(held)))
			}
		})
	}

	lsn := pglogrepl.LSN(1000)
	for range transactions {
		mustBegin(t, tracker, lsn)
		for range perTransaction {
			records <- sent{mustNext(t, tracker), lsn + 48}
		}
		mustKeepalive(t, tracker, lsn)
		lsn += 48
		mustCommit(t, tracker, lsn)
		mustKeepalive(t, tracker, lsn)
	}
	close(records)
	wg.Wait()

	if got, n := tracker.Confirmed(), tracker.Outstanding(); got != lsn || n != 0 {
		t.Errorf("Confirmed() = %s, Outstanding() = %d, want %s, 0", got, n, lsn)
	}
}

func TestTrackerMemoryDoesNotGrowWithATransaction(t *testing.T) {
	const records, inFlight = 1_000_000, 1000
	tracker := New(0, nil)
	mustBegin(t, tracker, 100)
	for range records {
		if seq := mustNext(t, tracker); seq > inFlight {
			mustAck(t, tracker, seq-inFlight)
		}
	}
	if lsn, acked, ok := tracker.OpenTransaction(); lsn != 100 || acked != records-inFlight || !ok {
		t.Errorf("OpenTransaction() = %s, %d, %t, want %s, %d, true", lsn, acked, ok, pglogrepl.LSN(100), records-inFlight)
	}
	if got, want := len(tracker.acked.words), 2*inFlight/wordBits+1; got > want {
		t.Errorf("%d words for %d records in flight, want at most %d", got, inFlight, want)
	}
	if got := len(tracker.inFlight.ring); got != 1 {
		t.Errorf("room for %d transactions, want 1", got)
	}
}

func TestTrackerGivesMemoryBack(t *testing.T) {
	const transactions = 200_000
	tracker := New(0, nil)
	for i := range transactions {
		mustBegin(t, tracker, pglogrepl.LSN(16*i))
		mustNext(t, tracker)
		mustCommit(t, tracker, pglogrepl.LSN(16*i+16))
	}
	if got := tracker.Window(); got != transactions {
		t.Fatalf("Window() = %d, want %d", got, transactions)
	}
	for seq := Seq(transactions); seq > 0; seq-- { // the oldest last: then all are confirmed at once
		mustAck(t, tracker, seq)
	}
	if got, want := tracker.Confirmed(), pglogrepl.LSN(16*transactions); got != want {
		t.Errorf("Confirmed() = %s, want %s", got, want)
	}
	if got := len(tracker.acked.words); got != keepWords {
		t.Errorf("window of %d words, want %d", got, keepWords)
	}
	if got := len(tracker.inFlight.ring); got != keepTransactions {
		t.Errorf("room for %d transactions, want %d", got, keepTransactions)
	}
}

func TestTrackerDoesNotAllocateInSteadyState(t *testing.T) {
	tracker := New(0, nil)
	lsn := pglogrepl.LSN(0)
	seqs := make([]Seq, 10)
	got := testing.AllocsPerRun(1000, func() {
		lsn += 48
		mustBegin(t, tracker, lsn)
		for i := range seqs {
			seqs[i] = mustNext(t, tracker)
		}
		mustCommit(t, tracker, lsn+48)
		mustKeepalive(t, tracker, lsn+48)
		mustAck(t, tracker, seqs[5:]...)
		mustAck(t, tracker, seqs[:5]...)
	})
	if got != 0 {
		t.Errorf("%v allocations per transaction, want 0", got)
	}
}

func mustBegin(tb testing.TB, tracker *Tracker, commitLSN pglogrepl.LSN) { //nolint:thelper // as mustAck
	if err := tracker.Begin(commitLSN, time.Time{}); err != nil {
		tb.Fatal(err)
	}
}

func mustNext(tb testing.TB, tracker *Tracker) Seq { //nolint:thelper // as mustAck
	seq, err := tracker.Next(row)
	if err != nil {
		tb.Fatal(err)
	}
	return seq
}

func mustKeepalive(tb testing.TB, tracker *Tracker, walEnd pglogrepl.LSN) {
	tb.Helper()
	if err := tracker.Keepalive(walEnd); err != nil {
		tb.Fatal(err)
	}
}

func mustCommit(tb testing.TB, tracker *Tracker, endLSN pglogrepl.LSN) { //nolint:thelper // as mustAck
	if err := tracker.Commit(endLSN); err != nil {
		tb.Fatal(err)
	}
}

//nolint:thelper // Helper costs more than Ack, and this is called millions of times
func mustAck(tb testing.TB, tracker *Tracker, seqs ...Seq) {
	if err := tracker.Ack(seqs...); err != nil {
		tb.Fatal(err)
	}
}

// Many processes read a large transaction. Each starts at the position record of the previous one, and is killed
// after it has written a position record. Together they deliver every row, and each makes progress.
func TestKilledReadersDeliverEveryRow(t *testing.T) {
	const rows, commitLSN, endLSN = 5000, 0x200, 0x210
	rng := rand.New(rand.NewPCG(1, 0))
	delivered := make([]bool, rows)
	var record Prefix
	for process := 0; ; process++ {
		if process == rows {
			t.Fatal("the transaction is never read completely")
		}
		tracker := New(0x100, nil)
		tracker.Resume(record)
		mustBegin(t, tracker, commitLSN)
		var unacked []Seq
		index := make(map[Seq]int)
		for i, most := 0, int(record.Rows)+1000+rng.IntN(2000); i < min(most, rows); i++ {
			seq, err := tracker.Next(fmt.Appendf(nil, "row %d", i))
			if err != nil {
				t.Fatal(err)
			}
			if seq == 0 {
				continue
			}
			index[seq] = i
			unacked = append(unacked, seq)
			for len(unacked) > 500 {
				at := rng.IntN(len(unacked))
				mustAck(t, tracker, unacked[at])
				delivered[index[unacked[at]]] = true
				unacked = slices.Delete(unacked, at, at+1)
			}
		}
		if len(index)+int(record.Rows) == rows {
			mustCommit(t, tracker, endLSN)
			mustAck(t, tracker, unacked...)
			for _, seq := range unacked {
				delivered[index[seq]] = true
			}
			if tracker.Confirmed() != endLSN || tracker.Prefix() != (Prefix{}) {
				t.Errorf("confirmed %s, %+v", tracker.Confirmed(), tracker.Prefix())
			}
			break
		}
		if record = tracker.Prefix(); slices.Contains(delivered[:record.Rows], false) {
			t.Fatalf("the record has %d rows, but one of them is not delivered", record.Rows)
		}
	}
	if i := slices.Index(delivered, false); i >= 0 {
		t.Errorf("row %d is not delivered", i)
	}
}

// WindowBytes counts the bytes of rows from the oldest unacknowledged record on. It may return up to 1 MiB more.
func TestWindowBytes(t *testing.T) {
	tracker := New(0x100, nil)
	mustBegin(t, tracker, 0x200)
	large := make([]byte, 300<<10)
	for i := range 100 {
		if _, err := tracker.Next(large); err != nil {
			t.Fatal(err)
		}
		if got, want := tracker.WindowBytes(), int64(i+1)*300<<10; got != want {
			t.Fatalf("%d bytes, want %d", got, want)
		}
	}
	for seq := Seq(1); seq <= 100; seq++ {
		mustAck(t, tracker, seq)
		got, left := tracker.WindowBytes(), int64(100-seq)*300<<10
		if got < left || left == 0 && got != 0 || got > left+1<<20+300<<10 {
			t.Fatalf("%d bytes after %d of 100, %d are left", got, seq, left)
		}
	}
}

// AckedUpTo is true for a record as soon as it and every earlier one are acknowledged.
func TestAckedUpTo(t *testing.T) {
	tr := New(0, nil)
	if newest, _, _ := tr.Newest(); newest != 0 || !tr.AckedUpTo(0) {
		t.Errorf("without records: newest %d", newest)
	}
	if err := tr.Begin(10, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := tr.Next([]byte("row")); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		ack  Seq
		upTo Seq
	}{{2, 0}, {1, 2}, {3, 3}} {
		if err := tr.Ack(step.ack); err != nil {
			t.Fatal(err)
		}
		if newest, commitLSN, index := tr.Newest(); newest != 3 || commitLSN != 10 || index != 2 || !tr.AckedUpTo(step.upTo) || tr.AckedUpTo(step.upTo+1) {
			t.Errorf("after record %d, records up to %d are not all that are acknowledged", step.ack, step.upTo)
		}
	}
}
