package owner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// A reportingSource reports the confirmed position every second until the connection is lost. It stays open until
// the test lets it close.
type reportingSource struct {
	streamtest.Source
	closing chan struct{}
}

func (s *reportingSource) Run(ctx context.Context, confirmed func() pglogrepl.LSN, _ chan<- *replication.Batch) error {
	for {
		s.Confirmed = confirmed()
		select {
		case <-time.After(time.Second):
		case <-s.Lost:
			return streamtest.ErrLost
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *reportingSource) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	<-s.closing
	return s.Source.Close(ctx, confirmed)
}

// While the position store does not respond, the relay confirms no position to Postgres, although every record
// is acknowledged.
func TestSlotPositionWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &positiontest.Store{}
		o, _ := newTestOwner(t, settings{})
		storeIn(t, o, store)
		positiontest.Begin(t, o.positions, positiontest.Server(50))
		tracker := positiontest.Start(t, o.positions, positiontest.Server(50))
		store.Allow = make(chan error)
		src := &reportingSource{closing: make(chan struct{})}
		s := o.startSession(t.Context(), src, slotIdentity{}, 1)
		s.positions.Store(o.positions.Writer)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		began := time.Now()
		positiontest.Deliver(tracker, 110) // before run, which otherwise may write the position at which the ownership starts
		go func() { ran <- o.positions.Writer.Run(ctx) }()
		bubble.Sleep(40 * time.Second)
		if since := o.positions.Writer.WaitingSince(); o.SlotPosition() != 0 || since.Sub(began) > time.Second || since.IsZero() {
			t.Errorf("nothing is recorded for 40 s: confirmed %s, waiting since %s", o.SlotPosition(), since.Sub(began))
		}
		store.Allow <- nil
		bubble.Sleep(3 * time.Second)
		if since := o.positions.Writer.WaitingSince(); o.SlotPosition() != 110 || !since.IsZero() {
			t.Errorf("it is recorded and reported: confirmed %s, waiting since %s", o.SlotPosition(), since)
		}
		stop()
		close(src.closing)
		if err := s.close(t.Context(), errStopReading); err != nil {
			t.Error(err)
		}
		<-ran
	})
}

// The relay hears of a lost session immediately, while its connection is still being closed. A position that the session could no
// longer report does not count as confirmed.
func TestLostSessionIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := newTestOwner(t, settings{})
		var ended error
		o.cfg.SessionEnded = func(_ context.Context, err error) { ended = err }
		w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(50))
		positiontest.Deliver(tracker, 110)
		src := &reportingSource{Source: streamtest.Source{Lost: make(chan struct{})}, closing: make(chan struct{})}
		s := o.startSession(t.Context(), src, slotIdentity{}, 1)
		s.positions.Store(w.Writer)
		bubble.Sleep(5 * time.Second)
		positiontest.Write(t, w)
		close(src.Lost)
		synctest.Wait()
		if !errors.Is(ended, streamtest.ErrLost) || o.SlotPosition() != 0 {
			t.Errorf("ended with %v, confirmed %s", ended, o.SlotPosition())
		}
		close(src.closing)
		_ = s.close(t.Context(), errStopReading)
		if got := o.SlotPosition(); got != 110 {
			t.Errorf("after the last report confirmed is %s", got)
		}
	})
}

// A position that the stream could not report yet, because it has not read so far, does not count as confirmed.
func TestSlotPositionIsWhatTheStreamReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := newTestOwner(t, settings{})
		w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(50))
		positiontest.Deliver(tracker, 110)
		positiontest.Write(t, w)
		src := &streamtest.Source{Confirmed: 60}
		s := o.startSession(t.Context(), src, slotIdentity{}, 1)
		s.positions.Store(w.Writer)
		for range 2 {
			if next := s.nextReport(); next != 110 {
				t.Errorf("the next position is %s", next)
			}
		}
		if got := o.SlotPosition(); got != 60 {
			t.Errorf("confirmed %s, reported 0/3C", got)
		}
		if err := s.close(t.Context(), errStopReading); err != nil || o.SlotPosition() != 110 {
			t.Errorf("closed with %v, confirmed %s", err, o.SlotPosition())
		}
	})
}
