package release

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A release reads the dead-letter topic only when no open transaction hides what the topic has by then. It waits for a
// while, and then lets the operator know which partition is in the way. Transactions that begin later do not delay it.
func TestReleaseWaitsForHiddenDeadLetters(t *testing.T) {
	for name, test := range map[string]struct {
		ends   time.Duration // when the transaction ends, and another one begins
		waited time.Duration
	}{
		"it ends soon": {time.Second, time.Second},
		"it hangs":     {time.Hour, readableTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				topic := &hiddenDeadLetters{madeDeadLetters: newMadeDeadLetters([]uint64{1, 0, 2}, []uint64{0}), ends: time.Now().Add(test.ends)}
				r := &releaseRun{Releaser: &Releaser{cfg: Config{DeadLetters: "dead"}}, reader: topic, next: make(map[int32]int64)}
				r.parking.ID = "this"
				began := time.Now()
				err := r.find(t.Context(), readableTimeout)
				waited := bubble.Since(began)
				hangs, ok := errors.AsType[*sink.OpenTransactionError](err)
				if want := test.ends > readableTimeout; ok != want || want && (hangs.Partition != 0 || hangs.Since != 1 || !errors.As(err, new(*releaseWaitsError))) {
					t.Errorf("find: %v", err)
				}
				if waited < test.waited || waited > test.waited+time.Second {
					t.Errorf("find took %s", waited)
				}
				if !ok && (len(r.waiting.runs) != 1 || r.waiting.runs[0].deadLetters != 2) {
					t.Errorf("found: %+v", r.waiting.runs)
				}
			})
		})
	}
}

// hiddenDeadLetters is a topic with an open transaction at offset 1 of partition 0. When it ends, another one begins.
type hiddenDeadLetters struct {
	*madeDeadLetters
	ends time.Time
}

func (h *hiddenDeadLetters) OffsetRanges(context.Context) ([]sink.OffsetRange, error) {
	ranges := []sink.OffsetRange{{End: 1, Hidden: 3}, {Partition: 1, End: 1}}
	if !time.Now().Before(h.ends) {
		ranges[0].End, ranges[0].Hidden = 3, 5
	}
	return ranges, nil
}

// A release waits for the end of a copy, because the pump cannot be paused before.
func TestReleaseWaitsForTheCopy(t *testing.T) {
	r := &releaseRun{Releaser: &Releaser{cfg: Config{Copying: func() bool { return true }}}}
	if err := r.run(t.Context()); !errors.As(err, new(*releaseWaitsError)) || !errors.Is(err, errCopyRuns) {
		t.Errorf("run: %v", err)
	}
}

// A key is unparked only when every dead letter that this process has sent was sent again or discarded.
func TestReleaseCountsItsDeadLetters(t *testing.T) {
	set := parking.NewSet(1)
	first, _ := set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 100})
	for i := range 2 {
		set.Follow("orders", []byte("k"), parking.Row{LSN: 100, Index: i + 1})
	}
	earlier := encode.Place{LSN: 90} // of an earlier process
	set.Progress(first.Parking, []encode.Place{earlier, {LSN: 100}, {LSN: 100, Index: 1}}, 2)
	set.Follow("orders", []byte("k"), parking.Row{LSN: 100, Index: 1}) // read again
	if n := set.Unreleased(first.Parking); n != 1 {
		t.Errorf("%d are left", n)
	}
}

// A dead letter that is stored twice is released, or here passed over, once.
func TestReleaseOfALetterStoredTwice(t *testing.T) {
	discarded := []parking.Discarded{{Row: parking.Row{LSN: 100}}}
	r := &releaseRun{Releaser: new(Releaser), parking: parking.Parking{Discarded: discarded}}
	for range 2 {
		if err := r.sendDeadLetter(t.Context(), deadLetterPlace{Place: encode.Place{LSN: 100}}, &encode.DeadLetter{LSN: 100, Parked: &encode.Parked{}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.batch); n != 1 {
		t.Errorf("%d are released", n)
	}
}

// A discarded row is left out, also if a refill has read it again. Others with its id, or without one, are not.
func TestReleaseLeavesOutDiscardedRows(t *testing.T) {
	const streamed, copied = 0, 7
	r := &releaseRun{Releaser: new(Releaser), parking: parking.Parking{Discarded: []parking.Discarded{{Row: parking.Row{LSN: 100}, ID: "a"}, {Row: parking.Row{LSN: 200}}}}}
	for _, tc := range []struct {
		lsn       pglogrepl.LSN
		id        string
		ownership int64
		want      bool
	}{
		{100, "a", streamed, true},
		{300, "a", streamed, false},
		{300, "a", copied, true},
		{300, "b", copied, false},
		{200, "", streamed, true},
		{300, "", copied, false},
	} {
		dead := &encode.DeadLetter{LSN: tc.lsn, Parked: &encode.Parked{Place: encode.Place{Owner: tc.ownership}}}
		if tc.id != "" {
			dead.Record.Headers = []sink.Header{{Key: encode.IDHeader, Value: []byte(tc.id)}}
		}
		if got := r.discarded(dead); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}
