package relay

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// Each transaction with rows is measured once, when everything before it is acknowledged too.
func TestCommitsAreMeasuredWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []time.Duration
		c := &commits{delivered: func(d time.Duration, _ string) { got = append(got, d) }}
		tracker := checkpoint.New(10)
		c.reset(tracker)
		at := time.Now()
		var seqs []checkpoint.Seq
		const transactions = 200 // more than the ring holds at first
		for i := range transactions {
			lsn := pglogrepl.LSN(100 + 10*i)
			tracker.Begin(lsn)
			c.begin(lsn, at.Add(time.Duration(i)*time.Millisecond))
			if i%2 == 0 {
				seqs = append(seqs, tracker.Next())
			} else {
				c.drop()
			}
			tracker.Commit(lsn + 5)
			c.settle()
		}
		if len(got) > 0 || !c.oldest().Equal(at) {
			t.Fatalf("before anything is acknowledged: %d measured, oldest %s", len(got), c.oldest())
		}
		time.Sleep(time.Second)
		must := func(seqs ...checkpoint.Seq) {
			if err := tracker.Ack(seqs...); err != nil {
				t.Fatal(err)
			}
			c.settle()
		}
		must(seqs[1:]...)
		if len(got) > 0 {
			t.Fatalf("%d measured behind a gap", len(got))
		}
		must(seqs[0])
		if len(got) != transactions/2 || !c.oldest().IsZero() {
			t.Fatalf("%d measured, oldest %s", len(got), c.oldest())
		}
		if got[0] != time.Second || got[len(got)-1] != time.Second-(transactions-2)*time.Millisecond || !slices.IsSortedFunc(got, func(a, b time.Duration) int { return int(b - a) }) {
			t.Errorf("measured %s … %s", got[0], got[len(got)-1])
		}

		// A server whose clock is ahead.
		tracker.Begin(9000)
		c.begin(9000, time.Now().Add(time.Hour))
		seq := tracker.Next()
		tracker.Commit(9005)
		must(seq)
		if last := got[len(got)-1]; last != 0 {
			t.Errorf("%s from a commit in the future", last)
		}
		c.begin(9010, time.Now())
		c.reset(tracker)
		if !c.oldest().IsZero() {
			t.Error("what was left of the last session is counted twice")
		}
	})
}

func TestFailuresAreFew(t *testing.T) {
	var f failures
	now := time.Unix(1_700_000_000, 0)
	f.add(errors.New("read from port 5432"), now)
	f.add(errors.New("read from port 5433"), now.Add(time.Minute))
	if len(f) != 1 || f[0].Times != 2 || f[0].Text != "read from port 5433" || f[0].Last.Sub(f[0].First) != time.Minute || f[0].ExitCode != ExitUnexpected {
		t.Errorf("a repeated failure: %+v", f)
	}
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		f.add(errors.New(text), now)
	}
	if len(f) != keptFailures || f[0].Text != "b" || f[keptFailures-1].Text != "i" {
		t.Errorf("kept: %+v", f)
	}
	var gap failures
	gap.add(errRecord, now)
	if gap[0].ExitCode != ExitContinuity || gap[0].Advice == "" {
		t.Errorf("no advice: %+v", gap[0])
	}
}
