package release

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// errOver: the session has ended.
var errOver = errors.New("the session has ended")

// Rows are released or discarded only when no later relay reads them again: that relay would send them once more. That
// they are acknowledged is not enough, their position must be stored.
func TestReleaseWaitsForThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &positiontest.Store{}
		w, tracker := positiontest.Started(t, store, positiontest.Server(100))
		store.Allow = make(chan error)
		stop := positiontest.Run(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		synctest.Wait()
		positiontest.Deliver(tracker, 200)
		r := &Releaser{cfg: Config{Record: w.Record, Positions: w.Writer, Tracker: tracker}}
		var end encode.Place
		var waited error
		var over bool
		settle := func() {
			end, waited = r.awaitRecorded(ctx, settleTimeout)
			over = true
		}
		running.Go(settle)
		for _, want := range []bool{false, true} { // the first write is of the position at which the ownership starts
			store.Allow <- nil
			bubble.Sleep(time.Second)
			synctest.Wait()
			if over != want || waited != nil {
				t.Errorf("over: %t, %v", over, waited)
			}
		}
		if row := (encode.Place{Generation: 1, LSN: 199}); end.Compare(row) < 0 || end.Compare(encode.Place{Generation: 1, LSN: 200}) >= 0 {
			t.Errorf("settled up to %s", end)
		}
		running.Wait()
		positiontest.Deliver(tracker, 300)
		if _, err := r.awaitRecorded(ctx, settleTimeout); err == nil {
			t.Error("a row whose position is not stored counts as settled")
		}
		running.Go(settle)
		synctest.Wait()
		cancel()
		running.Wait()
		stop()
		if !errors.Is(waited, context.Canceled) {
			t.Error(waited)
		}
	})
}

// delivered returns the Writer of an ownership, which runs until the end of the test, and the Tracker. Rows up to 200 are delivered.
func delivered(t *testing.T) (*position.Positions, *checkpoint.Tracker) {
	t.Helper()
	w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(100))
	t.Cleanup(positiontest.Run(t, w))
	positiontest.Deliver(tracker, 200)
	return w, tracker
}

// storedDeadLetters is a dead-letter topic with one partition.
type storedDeadLetters []*sink.StoredRecord

func (s storedDeadLetters) OffsetRanges(context.Context) ([]sink.OffsetRange, error) {
	return []sink.OffsetRange{{End: int64(len(s))}}, nil
}

func (s storedDeadLetters) Read(_ context.Context, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	for _, r := range s[offsets.Begin:offsets.End] {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (storedDeadLetters) Close() error { return nil }

// with returns the topic after another dead letter, of a row of a parked key.
func (s storedDeadLetters) with(p encode.Parked, lsn pglogrepl.LSN) storedDeadLetters {
	rec := &sink.Record{Topic: "orders", Partition: sink.AnyPartition, Key: []byte("k")}
	dead := encode.DeadRecord("dead", encode.Origin{Slot: "s", Tx: encode.Tx{CommitLSN: lsn}}, rec, "bad")
	dead = encode.Park(dead, rec.Key, p)
	return append(s, &sink.StoredRecord{Record: *dead, Offset: int64(len(s))})
}

// Dead letters of an earlier relay are released only from the first bad row on, and up to the rows that the ownership has read: it has
// delivered the ones before, and delivers the ones behind if the key is unparked by then.
func TestReleaseLeavesRowsThatAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tracker := delivered(t)
		var deadLetters storedDeadLetters
		for _, lsn := range []pglogrepl.LSN{110, 150, 190, 250} {
			deadLetters = deadLetters.with(encode.Parked{Parking: "p", Place: encode.Place{Generation: 1, LSN: lsn}}, lsn)
		}
		r := &releaseRun{
			Releaser: &Releaser{cfg: Config{Record: w.Record, Positions: w.Writer, Tracker: tracker, Set: parking.NewSet(1)}}, parking: parking.Parking{ID: "p", Generation: 1, First: parking.Row{LSN: 150}}, reader: deadLetters, next: make(map[int32]int64),
		}
		end, err := r.awaitRecorded(t.Context(), settleTimeout)
		if err == nil {
			err = r.find(t.Context(), readableTimeout)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []pglogrepl.LSN
		err = r.waiting.read(t.Context(), deadLetters, "p", end, func(at deadLetterPlace, _ *encode.DeadLetter) error {
			got = append(got, at.LSN)
			return nil
		})
		if err != nil || !slices.Equal(got, []pglogrepl.LSN{150, 190}) {
			t.Errorf("released: %v, %v", got, err)
		}
	})
}

// A row is not discarded before the record covers its transaction: a later relay would read it again, and if it can be delivered by
// then, it would come after rows that a release has sent.
func TestDiscardWaitsForTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tracker := delivered(t)
		if err := tracker.Begin(300, time.Time{}); err != nil {
			t.Fatal(err)
		}
		seq, err := tracker.Next([]byte("row"))
		if err := errors.Join(err, tracker.Ack(seq)); err != nil {
			t.Fatal(err)
		}
		deadLetters := storedDeadLetters(nil).with(encode.Parked{Parking: "p", Place: encode.Place{Generation: 1, LSN: 300}}, 300)
		set := parking.NewSet(1)
		discard := func() error {
			bad := parking.Row{LSN: 300}
			r := &releaseRun{
				Releaser: &Releaser{cfg: Config{Record: w.Record, Positions: w.Writer, Tracker: tracker, Set: set}}, parking: parking.Parking{ID: "p", Generation: 1, First: bad, Bad: bad},
				request: &parking.Request{Action: parking.Discard}, reader: deadLetters, next: make(map[int32]int64),
			}
			return r.prepare(t.Context())
		}
		if err := discard(); !errors.Is(err, errTransactionOpen) || !errors.As(err, new(*releaseWaitsError)) {
			t.Errorf("within the transaction: %v", err)
		}
		if err := tracker.Commit(301); err != nil {
			t.Fatal(err)
		}
		if err := discard(); errors.Is(err, errTransactionOpen) {
			t.Errorf("after the transaction: %v", err)
		}
	})
}

// While an operator discards the row at which a release has stopped, the relay reads that row again and sends its dead letter. The
// row that is discarded is this one, and not whatever has expired.
func TestDiscardOfARowThatIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tracker := delivered(t)
		set, bad := parking.NewSet(1), parking.Row{LSN: 299}
		first, _ := set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 110})
		set.Progress(first.Parking, []encode.Place{{LSN: 110}}, 1)
		topic := &growingDeadLetters{storedDeadLetters: storedDeadLetters(nil).with(encode.Parked{Parking: first.Parking, Place: encode.Place{Generation: 1, LSN: 299}}, 299), grow: func() {
			set.Follow("orders", []byte("k"), bad)
			positiontest.Deliver(tracker, 300)
		}}
		parked := set.List()[0]
		parked.Bad = bad
		r := &releaseRun{
			Releaser: &Releaser{cfg: Config{Record: w.Record, Positions: w.Writer, Tracker: tracker, Set: set, Keys: w.Parked, Turn: make(chan struct{}, 1)}}, parking: parked,
			request: &parking.Request{Action: parking.Discard}, reader: topic, next: make(map[int32]int64),
		}
		if err := r.prepare(t.Context()); err != nil || len(r.parking.Discarded) != 1 || r.parking.Discarded[0].Row != bad {
			t.Errorf("discarded is %v, %v", r.parking.Discarded, err)
		}
	})
}

// growingDeadLetters are empty when they are read first. Then grow is called.
type growingDeadLetters struct {
	storedDeadLetters
	grow func()
}

func (g *growingDeadLetters) OffsetRanges(ctx context.Context) ([]sink.OffsetRange, error) {
	if g.grow != nil {
		g.grow()
		g.grow = nil
		return nil, nil
	}
	return g.storedDeadLetters.OffsetRanges(ctx)
}

// A release asks for the dead letter of the row because of which the key was parked, unless that row is unknown.
func TestReleaseAsksForTheFirstDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tracker := delivered(t)
		deadLetters := storedDeadLetters(nil).with(encode.Parked{Parking: "p", Place: encode.Place{Generation: 1, LSN: 190}}, 190)
		for first, want := range map[parking.Row]error{{LSN: 190}: nil, {LSN: 150}: errExpired, {}: nil} {
			r := &releaseRun{
				Releaser: &Releaser{cfg: Config{Record: w.Record, Positions: w.Writer, Tracker: tracker, Set: parking.NewSet(1)}}, parking: parking.Parking{ID: "p", Generation: 1, First: first},
				request: &parking.Request{Action: parking.Release}, reader: deadLetters, next: make(map[int32]int64),
			}
			if err := r.prepare(t.Context()); !errors.Is(err, want) {
				t.Errorf("first %v: %v", first, err)
			}
		}
	})
}

// A relay restores parked keys that the position topic has lost, but not after its fence has closed: two later relays may
// have released the keys and removed the set meanwhile.
func TestParkedKeysAreRestoredBehindAnOpenFence(t *testing.T) {
	store := &positiontest.Store{}
	set := parking.NewSet(1)
	w, tracker := positiontest.Started(t, store, positiontest.Server(100), func(c *position.Config) { c.Parked = set })
	set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 150})
	var lost error
	r := New(Config{
		Store: positiontest.Open(t, store, slog.New(slog.DiscardHandler)), Keys: w.Parked, Record: w.Record, Positions: w.Writer, Tracker: tracker, Set: set,
		Fence: func() error { return lost },
	})
	for _, lost = range []error{errOver, nil} {
		store.Values = nil
		if err := r.handleRequests(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err := w.Recorder.Read(t.Context())
		if err != nil || (found.Parked != nil) != (lost == nil) {
			t.Errorf("fence: %v; restored is %+v, %v", lost, found.Parked, err)
		}
	}
}

// An ownership goes on while the requests cannot be read, unless they never can be read again.
func TestRequestsThatCannotBeRead(t *testing.T) {
	for refuse, ends := range map[error]bool{sink.ErrAccess: false, sink.ErrUnreachable: true, sink.ErrMissing: true, sink.ErrFatal: true, errOver: false} {
		set := parking.NewSet(1)
		set.Park(parking.Key{Topic: "orders", Key: "k"}, "bad", parking.Row{LSN: 150})
		r := New(Config{
			Store: positiontest.Open(t, &positiontest.Store{Refuse: refuse}, slog.New(slog.DiscardHandler)), Set: set,
			Fence: func() error { return nil },
		})
		r.countsStored = time.Now()
		if err := r.handleRequests(t.Context()); errors.Is(err, refuse) != ends {
			t.Errorf("%v: %v", refuse, err)
		}
	}
}
