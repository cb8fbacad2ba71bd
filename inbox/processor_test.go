package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A record that is delivered three times, and to several processors at the same time, has one effect.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv, migrations.Config{})
		shared := pool(t, db)
		p := processor(t, shared, nil)
		e := makeEvent(1, "k", "A")
		handle(t, p, e, e, e)
		concurrent := makeEvent(2, "k", "A")
		var wg sync.WaitGroup
		for _, p := range []*inbox.Processor{p, processor(t, shared, nil), processor(t, shared, nil)} {
			wg.Go(func() {
				if err := p.Handle(t.Context(), concurrent); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if diff := cmp.Diff(ids(e, concurrent), effects(t, db, "k")); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
		if s := p.Stat().Types["A"]; s.Handled+s.Duplicates != 4 || s.Duplicates < 2 {
			t.Errorf("Stat = %+v", s)
		}
	})
}

// While an event is retried, later events of its key wait and other keys continue. Each attempt gets the
// event unchanged.
func TestRetryKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv, migrations.Config{})
		shared := pool(t, db)
		bad := makeEvent(0, "k", "A")
		bad.Time = bad.Time.Truncate(time.Microsecond)
		var attempts []inbox.Event
		release := make(chan struct{})
		p := processor(t, shared, func(c *inbox.Config) {
			c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
				if e.ID != bad.ID {
					return effect(ctx, tx, e)
				}
				e.Time = e.Time.UTC()
				attempts = append(attempts, e)
				if err := effect(ctx, tx, e); err != nil || e.Attempt == 3 {
					return err
				}
				if e.Attempt == 2 {
					<-release
				}
				return errBroken
			}
		})
		run(t, p)
		behind := []inbox.Event{makeEvent(1, "k", "A"), makeEvent(2, "k", "A")}
		other := makeEvent(3, "other", "A")
		handle(t, p, bad, behind[0], behind[1], other, bad, behind[0])
		if got := effects(t, db, "other"); len(got) != 1 {
			t.Error("the event of the other key was not handled")
		}
		if n := countUnprocessed(t, db); n != 3 {
			t.Errorf("%d events wait, want 3", n)
		}
		close(release)
		wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
		handle(t, p, bad, behind[1])
		if diff := cmp.Diff(ids(bad, behind[0], behind[1]), effects(t, db, "k")); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
		want := make([]inbox.Event, 3)
		for i := range want {
			want[i] = bad
			want[i].Time = bad.Time.UTC()
			want[i].Attempt = i + 1
		}
		if diff := cmp.Diff(want, attempts); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		got := p.Stat().Types["A"]
		if got.Handled != 4 || got.Failures != 2 || got.Retries < 2 || got.Deferred != 2 || got.Duplicates != 4 || got.Parked != 0 ||
			got.Duration.Count != 6 || got.Age.Count != 4 {
			t.Errorf("Stat = %+v", got)
		}
	})
}

// An event that always fails is parked, and blocks its key until it is retried successfully.
func TestParkAndRetry(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	var works atomic.Bool
	p := processor(t, shared, func(c *inbox.Config) {
		c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if !works.Load() && string(e.Key) == "k" {
				return errBroken
			}
			return effect(ctx, tx, e)
		}
	})
	run(t, p)
	bad, behind, other := makeEvent(0, "k", "A"), makeEvent(1, "k", "A"), makeEvent(2, "other", "A")
	handle(t, p, bad, behind, other)
	list := func() []inbox.WaitingEvent {
		return waitingEvents(t, shared)
	}
	wait.For(t, "it is parked", func() bool { return !list()[0].ParkedAt.IsZero() })
	all := list()
	if len(all) != 2 || all[0].ID != bad.ID || all[0].LastError != errBroken.Error() || all[0].Attempt != 4 || !all[0].DueAt.IsZero() ||
		all[1].ID != behind.ID || !all[1].ParkedAt.IsZero() || !all[1].DueAt.IsZero() || all[1].Attempt != 1 {
		t.Errorf("List = %+v", all)
	}
	if got := effects(t, db, "other"); len(got) != 1 {
		t.Error("the event of the other key was not handled")
	}
	works.Store(true)
	if err := (inbox.Store{}).Retry(t.Context(), shared, "test", bad.ID); err != nil {
		t.Error(err)
	}
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if diff := cmp.Diff(ids(bad, behind), effects(t, db, "k")); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	if s := p.Stat().Types["A"]; s.Parked != 1 {
		t.Errorf("Stat = %+v", s)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	p := processor(t, shared, func(c *inbox.Config) { c.RetryDelays = []time.Duration{} })
	bad, last := makeEvent(0, "k", "B"), makeEvent(3, "k", "A")
	handle(t, p, bad, makeEvent(1, "k", "A"), makeEvent(2, "k", "A"), last)
	waiting := waitingEvents(t, shared)
	if len(waiting) != 4 || !strings.Contains(waiting[0].LastError, "no handler is registered") {
		t.Fatalf("List = %+v", waiting)
	}
	// The first event has no handler, so it is parked at once. The test discards it and a later one.
	if err := (inbox.Store{}).Discard(t.Context(), shared, "test", waiting[1].ID, waiting[0].ID, waiting[1].ID); err != nil {
		t.Error(err)
	}
	checkLanes(t, db)
	run(t, p)
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	handle(t, p, bad, waiting[1].Event)
	if diff := cmp.Diff(ids(waiting[2].Event, last), effects(t, db, "k")); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// A duplicate of a handled event is not stored after the waiting events of its lane.
func TestRedeliveryToABusyLane(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	p := processor(t, pool(t, db), nil)
	good, bad := makeEvent(0, "k", "A"), makeEvent(1, "k", "B")
	handle(t, p, good, bad, good, bad)
	if n := countUnprocessed(t, db); n != 1 {
		t.Errorf("%d events wait, want 1", n)
	}
	if s := p.Stat(); s.Types["A"].Duplicates != 1 || s.Types[""].Duplicates != 1 {
		t.Errorf("Stat = %+v", s)
	}
}

// An event that arrives while the first one of its lane is removed does not stay undue: one of the two
// transactions makes it due.
func TestComingWhileTheFirstLeaves(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	// Storing a later event of the lane takes until the test releases the lock.
	const lock = 7
	locker := db.Conn(t)
	if _, err := locker.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `
		CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END';
		CREATE TRIGGER slowly BEFORE INSERT ON inbox_events FOR EACH ROW WHEN (NEW.due_at IS NULL) EXECUTE FUNCTION slowly()`)
	coming := make(chan struct{})
	p := processor(t, pool(t, db), func(c *inbox.Config) {
		c.RetryDelays[0] = 0
		c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if e.Offset == 0 && e.Attempt == 1 {
				return errBroken
			}
			if e.Offset == 0 {
				select {
				case <-coming:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return effect(ctx, tx, e)
		}
	})
	first, second := makeEvent(0, "k", "A"), makeEvent(1, "k", "A")
	handle(t, p, first)
	run(t, p)
	done := make(chan error, 1)
	go func() { done <- p.Handle(t.Context(), second) }()
	wait.For(t, "the second is being put behind the first", func() bool {
		return pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
	close(coming)
	<-time.After(200 * time.Millisecond) // the first leaves meanwhile, unless the machine is busy
	if _, err := locker.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, lock); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if diff := cmp.Diff(ids(first, second), effects(t, db, "k")); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

func TestUnknownTypesCanBeIgnored(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	p := processor(t, pool(t, db), func(c *inbox.Config) { c.OnUnknownType = inbox.IgnoreUnknown })
	handle(t, p, makeEvent(0, "k", "B"), makeEvent(1, "k", "C"), makeEvent(2, "k", "A"))
	if s := p.Stat(); s.Types[""].Ignored != 2 || s.Types["A"].Handled != 1 || countUnprocessed(t, db) != 0 {
		t.Errorf("Stat = %+v", s)
	}
}

// An error in a handler fails one attempt and nothing else.
func TestContainment(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	for name, test := range map[string]struct {
		do   inbox.Handler
		says string
	}{
		"panic":              {func(context.Context, pgx.Tx, inbox.Event) error { panic("at the disco") }, "panicked: at the disco\n\ngoroutine"},
		"index out of range": {func(_ context.Context, _ pgx.Tx, e inbox.Event) error { e.Headers[7].Name = ""; return nil }, "panicked: runtime error"},
		"commit":             {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error { return tx.Commit(ctx) }, "the handler must not commit or roll back"},
		"rollback":           {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error { return tx.Rollback(ctx) }, "the handler must not commit or roll back"},
		"swallowed error": {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		}, "returned nil although a statement"},
		"killed session": {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}, "57P01"},
		"deferred constraint": {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error {
			_, err := tx.Exec(ctx, `CREATE TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO deferred VALUES (1), (1)`)
			return err
		}, "commit: ERROR: duplicate key"},
		"too slow": {func(ctx context.Context, _ pgx.Tx, _ inbox.Event) error { <-ctx.Done(); return ctx.Err() }, "longer than Config.Timeout"},
		"too slow a query": {func(ctx context.Context, tx pgx.Tx, _ inbox.Event) error {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
			return err
		}, "longer than Config.Timeout"},
		"not text": {func(context.Context, pgx.Tx, inbox.Event) error {
			return errors.New("a\x00\xff" + strings.Repeat("x", 10_000))
		}, "a\uFFFD\uFFFDxx"},
	} {
		for attempts := 1; attempts <= 2; attempts++ { // in Handle, and in Run
			e := makeEvent(0, name, "A")
			p := processor(t, shared, func(c *inbox.Config) {
				if strings.HasPrefix(name, "too slow") {
					c.Timeout = 200 * time.Millisecond
				}
				c.RetryDelays = c.RetryDelays[:attempts-1]
				c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
					if err := effect(ctx, tx, e); err != nil {
						return err
					}
					return test.do(ctx, tx, e)
				}
			})
			handle(t, p, e)
			stop := run(t, p)
			var found inbox.WaitingEvent
			wait.For(t, name+" is parked", func() bool {
				found = waitingEvents(t, shared)[0]
				return !found.ParkedAt.IsZero()
			})
			stop()
			if !strings.Contains(found.LastError, test.says) || found.Attempt != attempts+1 {
				t.Errorf("%s: parked with attempts %d and the error %q, want %d and %q", name, found.Attempt-1, found.LastError, attempts, test.says)
			}
			if n := len(effects(t, db, name)); n != 0 {
				t.Errorf("%s: %d effects", name, n)
			}
			db.Exec(t, `TRUNCATE inbox_events`)
		}
	}
}

// An event without a key waits for no other event.
func TestEventsWithoutAKey(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	p := processor(t, pool(t, db), nil)
	bad, good := makeEvent(0, "", "B"), makeEvent(1, "", "A")
	bad.Key, good.Key = nil, nil
	handle(t, p, bad, good)
	if got := effects(t, db, ""); len(got) != 1 {
		t.Errorf("%d effects", len(got))
	}
}

func TestAnythingCanWait(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	p := processor(t, shared, nil)
	odd := makeEvent(0, strings.Repeat("k", 10_000), "a\x00\xff")
	odd.Headers = []inbox.Header{{"n\x00", nil}, {"", []byte{}}, {"", []byte{0}}}
	odd.Payload = nil
	empty := makeEvent(1, "", "")
	empty.Payload, empty.Headers = []byte{}, nil
	handle(t, p, odd, empty)
	got := waitingEvents(t, shared)
	if len(got) != 2 || got[0].Payload != nil || got[1].Payload == nil || got[1].Key == nil || len(got[0].Key) != 10_000 ||
		got[0].Type != "a\uFFFD\uFFFD" {
		t.Errorf("List = %+v", got)
	}
	want := []inbox.Header{{"n\uFFFD", nil}, {"", []byte{}}, {"", []byte{0}}}
	if diff := cmp.Diff(want, got[0].Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// TestRandomDeliveries lets several processors handle the same partition, each from offsets before the
// committed one, while handlers fail at random. In the end each key has each of its events once, in
// order.
func TestRandomDeliveries(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	const keys, perKey, processors = 5, 12, 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var partition []inbox.Event
	for n := range keys * perKey {
		partition = append(partition, makeEvent(n, fmt.Sprint(n%keys), "A"))
	}
	var durable atomic.Int64 // the committed offset
	var wg sync.WaitGroup
	for i := range processors {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		var mu sync.Mutex
		p := processor(t, shared, func(c *inbox.Config) {
			c.RetryDelays = slices.Repeat([]time.Duration{3 * time.Millisecond}, 1000)
			c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
				mu.Lock()
				fail, after := random.IntN(3) == 0, random.IntN(2) == 0
				mu.Unlock()
				if fail && !after {
					return errBroken
				}
				if err := effect(ctx, tx, e); err != nil || fail {
					return errors.Join(err, errBroken)
				}
				return nil
			}
		})
		run(t, p)
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i+100)))
			for durable.Load() < int64(len(partition)) {
				from := random.Int64N(durable.Load() + 1)
				to := min(int64(len(partition)), from+random.Int64N(20)+1)
				for n := from; n < to; n++ {
					if err := p.Handle(t.Context(), partition[n]); err != nil {
						t.Error(err)
						return
					}
					for old := durable.Load(); old == n && !durable.CompareAndSwap(old, n+1); old = durable.Load() {
					}
				}
			}
		})
	}
	wg.Wait()
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	for k := range keys {
		var want []inbox.Event
		for n := k; n < len(partition); n += keys {
			want = append(want, partition[n])
		}
		if diff := cmp.Diff(ids(want...), effects(t, db, fmt.Sprint(k))); diff != "" {
			t.Errorf("effects of key %d (-want +got):\n%s", k, diff)
		}
	}
}
