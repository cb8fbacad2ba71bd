package measure

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
)

const (
	maxRate     = 100_000
	overtime    = 15 * time.Second // a schedule may take twice its length and overtime
	defaultWarm = time.Second
	defaultKeys = 1000

	// The number of connections is so high that each has enough time for a commit that waits for a
	// disk.
	maxWriters      = 50
	commitsAtWriter = 50 // a second
)

// A schedule says when the rows of a flow are due, and records when they were sent and received. Row 0 is
// before the schedule; row i is due at (i-1)/rate. One writer writes all rows of a key, so they are committed
// in order.
type schedule struct {
	Flow
	writers int
	sleep   func(ctx context.Context, until time.Time) error
	begin   time.Time      // when row 1 is due; set before anything is sent
	sent    []atomic.Int64 // per row: after begin

	// Of the goroutine that receives.
	fromSchedule, fromSent, late histogram.Histogram
}

func newSchedule(f Flow) *schedule {
	f.WarmUp = cmp.Or(f.WarmUp, defaultWarm)
	s := &schedule{Flow: f, writers: min(max(f.Rate/commitsAtWriter, 2), maxWriters), sleep: sleepUntil}
	if s.Keys == 0 {
		s.Keys = defaultKeys
	}
	s.Keys = (s.Keys + s.writers - 1) / s.writers * s.writers
	s.sent = make([]atomic.Int64, s.rows())
	return s
}

// rows returns the number of rows, including row 0.
func (s *schedule) rows() int {
	return 1 + int((s.WarmUp+s.Duration).Seconds()*float64(s.Rate))
}

// due returns the time after begin at which row is due.
func (s *schedule) due(row int) time.Duration {
	return time.Duration(float64(row-1) / float64(s.Rate) * float64(time.Second))
}

// run calls write for every row when it is due, or when its writer has finished the previous row. It returns when
// all rows are written, or with an error if that takes too long. write is called from one goroutine per writer.
func (s *schedule) run(ctx context.Context, write func(ctx context.Context, writer, row int) error, progress func(sent int)) error {
	s.begin = time.Now()
	limit := 2*(s.WarmUp+s.Duration) + overtime
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the database cannot commit %d transactions per second from %d connections", s.Rate, s.writers))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	queues := make([]chan int, s.writers)
	for i := range queues {
		queues[i] = make(chan int, s.rows()/s.writers+1) // the pace never waits for a writer
	}
	g.Go(func() error { // the writers end when their queues do
		return s.pace(ctx, queues, progress)
	})
	for i, queue := range queues {
		g.Go(func() error {
			for row := range queue {
				s.sent[row].Store(int64(time.Since(s.begin)))
				if err := write(ctx, i, row); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// pace adds every row to its writer's queue when it is due, and then closes the queues.
func (s *schedule) pace(ctx context.Context, queues []chan int, progress func(sent int)) error {
	defer func() {
		for _, queue := range queues {
			close(queue)
		}
	}()
	runtime.LockOSThread() // to sleep exactly
	defer runtime.UnlockOSThread()
	said := time.Duration(0)
	for row := 1; row < s.rows(); row++ {
		if err := s.sleep(ctx, s.begin.Add(s.due(row))); err != nil {
			return err
		}
		queues[row%len(queues)] <- row
		if s.due(row) >= said {
			progress(row)
			said += progressInterval
		}
	}
	return nil
}

// coarse is about how late the runtime's timers may be: it waits in whole milliseconds.
const coarse = 2 * time.Millisecond

// sleepUntil returns at t or, with an error, when ctx is done.
func sleepUntil(ctx context.Context, t time.Time) error {
	if rough := time.Until(t) - coarse; rough > 0 {
		timer := time.NewTimer(rough)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sleepExactly(time.Until(t))
	return nil
}

// receive enters that a row was received first at a time.
func (s *schedule) receive(row int, at time.Time) {
	if row == 0 {
		return
	}
	sent := time.Duration(s.sent[row].Load()) // and begin is visible from here on
	due := s.due(row)
	if due < s.WarmUp {
		return
	}
	received := at.Sub(s.begin)
	s.fromSchedule.Record(received - due)
	s.fromSent.Record(received - sent)
	s.late.Record(sent - due)
}

// result returns the distributions.
func (s *schedule) result() LatencyResult {
	return LatencyResult{
		Rate: s.Rate, Measured: int(s.fromSchedule.Count()), Elapsed: s.WarmUp + s.Duration,
		FromSchedule: quantiles(&s.fromSchedule), FromSent: quantiles(&s.fromSent), WriterLate: quantiles(&s.late),
	}
}

func quantiles(h *histogram.Histogram) Quantiles {
	return Quantiles{
		P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), P999: h.Quantile(0.999), Max: h.Max(),
	}
}
