package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Stat is a snapshot of a Processor's counters since NewProcessor, and of the events that wait in the
// database.
type Stat struct {
	// Types has an entry for each type of Config.Handlers. The entry of the empty name counts all
	// other types.
	Types map[string]TypeStat
	// Running reports whether Run is running.
	Running bool
	// Full reports whether MaxWaiting events wait, so that Handle blocks.
	Full bool
	// BacklogAt is when Run last counted the waiting events, which it does every 5 s. Zero: not yet.
	BacklogAt time.Time
}

// A TypeStat has the counters of one event type.
type TypeStat struct {
	Handled    uint64 // events whose effects were committed
	Duplicates uint64 // events that were already handled or waiting when they arrived
	Deferred   uint64 // events stored behind an earlier event of their key
	Ignored    uint64 // events skipped because their type has no handler (IgnoreUnknown)
	Failures   uint64 // failed attempts
	Retries    uint64 // attempts after the first one of an event
	Parked     uint64 // events parked

	// Duration is the duration of attempts, including the transaction.
	Duration Histogram
	// Age is the time from the record's timestamp to the commit of the effects.
	Age Histogram

	// Backlog is what waits in inbox_events, for all instances of the consumer.
	Backlog Backlog
}

// A Backlog counts events in inbox_events.
type Backlog struct {
	Waiting, Parked int
	// OldestWaiting and OldestParked are the time since the oldest of them arrived. Zero if there is
	// none.
	OldestWaiting, OldestParked time.Duration
}

// A Histogram counts durations in cumulative buckets.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// Bounds are the upper bounds of the buckets, ascending. Counts[i] is the number of durations up
	// to Bounds[i].
	Bounds []time.Duration
	Counts []uint64
}

// bounds are the bounds of Duration and of Age.
var bounds = []time.Duration{ //nolint:gochecknoglobals // never changes
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, time.Hour,
}

func newHistogram() Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds))}
}

func (h *Histogram) add(d time.Duration) {
	d = max(d, 0) // the clocks of two hosts differ
	h.Count++
	h.Sum += d
	for i := len(h.Bounds) - 1; i >= 0 && d <= h.Bounds[i]; i-- {
		h.Counts[i]++
	}
}

func (h *Histogram) clone() Histogram {
	return Histogram{Count: h.Count, Sum: h.Sum, Bounds: slices.Clone(h.Bounds), Counts: slices.Clone(h.Counts)}
}

// A recorder keeps the counters, by types with a handler and the empty name.
type recorder struct {
	mu        *sync.Mutex
	types     map[string]*TypeStat
	backlogAt time.Time
}

func newRecorder(handlers map[string]Handler) recorder {
	r := recorder{mu: new(sync.Mutex), types: make(map[string]*TypeStat)}
	for _, name := range append(slices.Collect(maps.Keys(handlers)), "") {
		r.types[name] = &TypeStat{Duration: newHistogram(), Age: newHistogram()}
	}
	return r
}

func (r *recorder) count(name string, f func(*TypeStat)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.of(name))
}

// of returns the counters of a type. The caller holds r.mu.
func (r *recorder) of(name string) *TypeStat {
	if s, ok := r.types[name]; ok {
		return s
	}
	return r.types[""]
}

func (r *recorder) handled(e *Event, began time.Time) {
	now := time.Now()
	r.count(e.Type, func(s *TypeStat) {
		s.Handled++
		s.attempted(e, now.Sub(began))
		s.Age.add(now.Sub(e.Time))
	})
}

func (r *recorder) failed(e *Event, began time.Time) {
	r.count(e.Type, func(s *TypeStat) {
		s.Failures++
		s.attempted(e, time.Since(began))
	})
}

func (s *TypeStat) attempted(e *Event, took time.Duration) {
	if e.Attempt > 1 {
		s.Retries++
	}
	s.Duration.add(took)
}

// Stat returns the counters. The caller owns the result.
func (p *Processor) Stat() Stat {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	r := &p.stats
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stat{Types: make(map[string]TypeStat, len(r.types)), Running: p.running.Load(), Full: full, BacklogAt: r.backlogAt}
	for name, t := range r.types {
		c := *t
		c.Duration, c.Age = c.Duration.clone(), c.Age.clone()
		s.Types[name] = c
	}
	return s
}

// countBacklog counts the events in inbox_events.
func (p *Processor) countBacklog(ctx context.Context) error {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	rows, err := tx.Query(ctx, p.sql.backlog, p.cfg.Consumer)
	if err != nil {
		return explain("count events", err)
	}
	found := make(map[string]Backlog)
	waiting := 0
	var name string
	var b Backlog
	var oldestWaiting, oldestParked *float64
	_, err = pgx.ForEachRow(rows, []any{&name, &b.Waiting, &b.Parked, &oldestWaiting, &oldestParked}, func() error {
		if _, known := p.cfg.Handlers[name]; !known {
			name = ""
		}
		sum := found[name]
		sum.Waiting += b.Waiting
		sum.Parked += b.Parked
		sum.OldestWaiting = max(sum.OldestWaiting, seconds(oldestWaiting))
		sum.OldestParked = max(sum.OldestParked, seconds(oldestParked))
		found[name] = sum
		waiting += b.Waiting
		return nil
	})
	if err != nil {
		return explain("count events", err)
	}
	p.limit(ctx, waiting)
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	for name, s := range p.stats.types {
		s.Backlog = found[name]
	}
	p.stats.backlogAt = time.Now()
	return nil
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}
