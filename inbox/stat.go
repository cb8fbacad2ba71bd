package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Stat is a look at a Processor: what it has done since it was made, and what waits in the
// database.
type Stat struct {
	// Types has every type of Config.Handlers; under the empty name are all the others together.
	Types map[string]TypeStat
	// Running says whether Run is running.
	Running bool
	// Full says that MaxWaiting events wait, so that Handle takes no more.
	Full bool
	// CensusAt is when the events that wait were counted last, which Run does every few seconds.
	// Zero: not yet.
	CensusAt time.Time
}

// A TypeStat is about the events of one type.
type TypeStat struct {
	Handled    uint64 // effects that were committed
	Duplicates uint64 // had been handled, or were waiting, when they came
	Deferred   uint64 // were put behind an earlier event of their key
	Ignored    uint64 // have no handler, and Config.Unknown is Ignore
	Failures   uint64 // attempts that failed
	Retries    uint64 // attempts after the first one of an event
	Parked     uint64 // were given up until a person says otherwise

	// Duration is how long attempts take, the transaction included.
	Duration Histogram
	// Age is how long after the record's timestamp effects were committed.
	Age Histogram

	// Waiting is what all instances of the consumer have in inbox_events.
	Waiting Census
}

// A Census counts events in inbox_events.
type Census struct {
	Waiting, Parked int
	// OldestWaiting and OldestParked are how long the oldest ones have been there; 0 without any.
	OldestWaiting, OldestParked time.Duration
}

// A Histogram counts durations.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// Bounds are the upper ends of the buckets, ascending; Counts are how many durations were not
	// longer than each.
	Bounds []time.Duration
	Counts []uint64
}

// bounds are for durations of attempts and for ages of events alike.
var bounds = []time.Duration{ //nolint:gochecknoglobals // never changes
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, time.Hour,
}

func newHistogram() Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds))}
}

func (h *Histogram) add(d time.Duration) {
	d = max(d, 0) // clocks differ
	h.Count++
	h.Sum += d
	for i := len(h.Bounds) - 1; i >= 0 && d <= h.Bounds[i]; i-- {
		h.Counts[i]++
	}
}

func (h *Histogram) clone() Histogram {
	return Histogram{Count: h.Count, Sum: h.Sum, Bounds: slices.Clone(h.Bounds), Counts: slices.Clone(h.Counts)}
}

// A recorder counts. Its types are those with a handler and the empty one.
type recorder struct {
	mu       *sync.Mutex
	types    map[string]*TypeStat
	censusAt time.Time
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

// of returns the counts of a type; r.mu is held.
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

// Stat returns a copy: the caller may keep it.
func (p *Processor) Stat() Stat {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	r := &p.stats
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stat{Types: make(map[string]TypeStat, len(r.types)), Running: p.running.Load(), Full: full, CensusAt: r.censusAt}
	for name, t := range r.types {
		c := *t
		c.Duration, c.Age = c.Duration.clone(), c.Age.clone()
		s.Types[name] = c
	}
	return s
}

// takeCensus counts what waits in the database.
func (p *Processor) takeCensus(ctx context.Context) error {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	rows, err := tx.Query(ctx, p.sql.census, p.cfg.Consumer)
	if err != nil {
		return explain("count events", err)
	}
	found := make(map[string]Census)
	waiting := 0
	var name string
	var c Census
	var oldestWaiting, oldestParked *float64
	_, err = pgx.ForEachRow(rows, []any{&name, &c.Waiting, &c.Parked, &oldestWaiting, &oldestParked}, func() error {
		if _, known := p.cfg.Handlers[name]; !known {
			name = ""
		}
		sum := found[name]
		sum.Waiting += c.Waiting
		sum.Parked += c.Parked
		sum.OldestWaiting = max(sum.OldestWaiting, seconds(oldestWaiting))
		sum.OldestParked = max(sum.OldestParked, seconds(oldestParked))
		found[name] = sum
		waiting += c.Waiting
		return nil
	})
	if err != nil {
		return explain("count events", err)
	}
	p.limit(ctx, waiting)
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	for name, s := range p.stats.types {
		s.Waiting = found[name]
	}
	p.stats.censusAt = time.Now()
	return nil
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}
