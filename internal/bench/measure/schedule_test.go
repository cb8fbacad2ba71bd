package measure

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

func TestScheduleIsFixedInAdvance(t *testing.T) {
	for _, f := range []Flow{
		{Rate: 1, Duration: time.Second, Keys: 1},
		{Rate: 3000, Duration: 2 * time.Second, Keys: 10},
		{Rate: 333, Duration: 10 * time.Second},
		{Rate: 100, Duration: time.Second, WarmUp: 5 * time.Second},
	} {
		s := newSchedule(f)
		if got, want := s.rows(), 1+f.Rate*int((f.Duration+s.WarmUp).Seconds()); got != want {
			t.Errorf("%+v: %d rows, want %d", f, got, want)
		}
		if first, last := s.due(1), s.due(s.rows()-1); first != 0 || last >= f.Duration+s.WarmUp || last < f.Duration+s.WarmUp-2*time.Second/time.Duration(f.Rate) {
			t.Errorf("%+v: rows are due from %s to %s", f, first, last)
		}
		if s.Keys%s.writers != 0 || s.writers > maxWriters {
			t.Errorf("%+v: %d writers of %d keys", f, s.writers, s.Keys)
		}
	}
}

// sleepInBubble replaces sleepUntil, which blocks a thread.
func sleepInBubble(ctx context.Context, until time.Time) error {
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform runs s. The duration of each write is the result of write.
func perform(t *testing.T, s *schedule, write func(row int) time.Duration) error {
	t.Helper()
	s.sleep = sleepInBubble
	var mu sync.Mutex
	busy := make(map[int]int)
	return s.run(t.Context(), func(ctx context.Context, writer, row int) error {
		mu.Lock()
		if row%s.Keys%s.writers != writer {
			t.Errorf("row %d is written by writer %d: a key has more than one", row, writer)
		}
		if before := busy[writer]; row <= before {
			t.Errorf("writer %d writes row %d after row %d", writer, row, before)
		}
		busy[writer] = row
		mu.Unlock()
		return sleepInBubble(ctx, time.Now().Add(write(row)))
	}, func(int) {})
}

func TestLatencyCountsFromTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(Flow{Rate: 100, Duration: 2 * time.Second})
		stuck := 150 // this transaction takes 100 ms, and delays the later ones of its writer
		err := perform(t, s, func(row int) time.Duration {
			if row == stuck {
				return 100 * time.Millisecond
			}
			return time.Millisecond
		})
		if err != nil {
			t.Fatal(err)
		}
		for row := 1; row < s.rows(); row++ {
			s.receive(row, s.begin.Add(time.Duration(s.sent[row].Load())+2*time.Millisecond))
		}
		r := s.result()
		if r.Measured != 200 {
			t.Errorf("%d rows are measured, want those of 2 s", r.Measured)
		}
		if r.FromSent.Max > 3*time.Millisecond {
			t.Errorf("from sent: %+v", r.FromSent)
		}
		// Writer 0 of 2 has a row every 20 ms: they are 80, 61, 42, 23 and 4 ms late, and delivery takes 2 ms.
		if r.FromSchedule.Max < 80*time.Millisecond || r.FromSchedule.Max > 90*time.Millisecond || r.FromSchedule.P50 > 5*time.Millisecond {
			t.Errorf("from schedule: %+v", r.FromSchedule)
		}
		if r.WriterLate.Max < 78*time.Millisecond || r.WriterLate.P50 > 3*time.Millisecond {
			t.Errorf("writer late: %+v", r.WriterLate)
		}
	})
}

func TestWarmUpIsNotCounted(t *testing.T) {
	s := newSchedule(Flow{Rate: 10, Duration: time.Second})
	s.begin = time.Now()
	for row := range s.rows() {
		late := time.Millisecond
		if s.due(row) < s.WarmUp {
			late = time.Hour
		}
		s.receive(row, s.begin.Add(s.due(row)+late))
	}
	if r := s.result(); r.Measured != 10 || r.FromSchedule.Max > 2*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

func TestScheduleEndsWithItsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := newSchedule(Flow{Rate: 100, Duration: time.Second})
		err := s.run(t.Context(), func(context.Context, int, int) error { return broken }, func(int) {})
		if !errors.Is(err, broken) {
			t.Errorf("run = %v", err)
		}
		s = newSchedule(Flow{Rate: 1000, Duration: time.Second})
		begun := time.Now()
		if err := perform(t, s, func(int) time.Duration { return time.Second }); err == nil {
			t.Error("a database with 20 writes a second is accepted")
		}
		if took := bubble.Since(begun); took > time.Minute {
			t.Errorf("it took %s to give up", took)
		}
	})
}
