package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// failingOnce fails the first attempt at an event. Later attempts call do.
func failingOnce(do inbox.Handler) func(*inbox.Config) {
	return func(c *inbox.Config) {
		c.LeaseDuration = 300 * time.Millisecond
		c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if e.Attempt == 1 {
				return errBroken
			}
			if err := effect(ctx, tx, e); err != nil {
				return err
			}
			return do(ctx, tx, e)
		}
	}
}

// A lease is renewed while an attempt goes on.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	until := func() string {
		return pgtest.QueryRow[string](t, db, `SELECT coalesce(max(leased_until)::text, 'none') FROM inbox_events`)
	}
	p := processor(t, pool(t, db), failingOnce(func(context.Context, pgx.Tx, inbox.Event) error {
		began := until()
		wait.For(t, "the lease is renewed", func() bool { return until() > began })
		return nil
	}))
	run(t, p)
	e := makeEvent(0, "k", "A")
	handle(t, p, e)
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if diff := cmp.Diff(ids(e), effects(t, db, "k")); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// An attempt that takes longer than its lease keeps its event, because the lease is renewed.
func TestSlowAttemptIsLeftAlone(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it takes longer than a lease, which the machine must renew in time")
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	var attempts atomic.Int32
	slow := func(c *inbox.Config) {
		failingOnce(func(ctx context.Context, _ pgx.Tx, _ inbox.Event) error {
			attempts.Add(1)
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
			}
			return nil
		})(c)
		c.LeaseDuration = time.Second // a busy machine must renew it in time
	}
	first, second := processor(t, shared, slow), processor(t, shared, slow)
	run(t, first)
	run(t, second)
	e := makeEvent(0, "k", "A")
	handle(t, first, e)
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts, want one", n)
	}
	if diff := cmp.Diff(ids(e), effects(t, db, "k")); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// If a processor crashes during an attempt, another one retries the event when the lease expires.
func TestCrashedProcessorsEventsAreTakenOver(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv, migrations.Config{})
		shared := pool(t, db)
		p := processor(t, shared, failingOnce(func(context.Context, pgx.Tx, inbox.Event) error { return nil }))
		e := makeEvent(0, "k", "A")
		handle(t, p, e)
		leased := time.Now().Add(500 * time.Millisecond) // at least so long
		db.Exec(t, `UPDATE inbox_events SET leased_by = gen_random_uuid(), leased_until = clock_timestamp() + interval '500 ms', due_at = clock_timestamp()`)
		run(t, p)
		wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
		if now := time.Now(); now.Before(leased) {
			t.Errorf("the event was taken over %s before the end of the lease", leased.Sub(now))
		}
		if diff := cmp.Diff(ids(e), effects(t, db, "k")); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}

// An attempt that has lost its lease is canceled and has no effect.
func TestLostLease(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	began, cause := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	p := processor(t, shared, failingOnce(func(ctx context.Context, _ pgx.Tx, _ inbox.Event) error {
		once.Do(func() { close(began) })
		<-ctx.Done()
		select {
		case cause <- context.Cause(ctx):
		default: // on a busy machine, the lease may expire before, which is another attempt
		}
		return nil
	}))
	stop := run(t, p)
	handle(t, p, makeEvent(0, "k", "A"))
	<-began
	db.Exec(t, `UPDATE inbox_events SET leased_by = gen_random_uuid(), leased_until = 'infinity'`)
	if err := <-cause; !errors.Is(err, inbox.ErrLeaseLost) {
		t.Errorf("the handler's context ended by %v, want ErrLeaseLost", err)
	}
	stop()
	if n := len(effects(t, db, "k")); n != 0 || countUnprocessed(t, db) != 1 {
		t.Errorf("%d effects, %d events wait; want none and the other's one", n, countUnprocessed(t, db))
	}
}

// The transaction checks the lease, even if the attempt has not been canceled yet.
func TestLostLeaseIsNoticedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	took := make(chan struct{})
	p := processor(t, shared, func(c *inbox.Config) {
		failingOnce(func(context.Context, pgx.Tx, inbox.Event) error {
			db.Exec(t, `UPDATE inbox_events SET leased_by = gen_random_uuid(), leased_until = 'infinity'`) //nolint:contextcheck // another processor's
			close(took)
			return nil
		})(c)
		c.LeaseDuration = time.Hour
	})
	stop := run(t, p)
	handle(t, p, makeEvent(0, "k", "A"))
	<-took
	stop()
	if n := len(effects(t, db, "k")); n != 0 || countUnprocessed(t, db) != 1 {
		t.Errorf("%d effects, %d events wait; want none and the other's one", n, countUnprocessed(t, db))
	}
}

// When Run stops, attempts have Grace to finish, and the leases are released.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	for _, grace := range []time.Duration{time.Minute, time.Millisecond} {
		began, release := make(chan struct{}, 2), make(chan struct{})
		p := processor(t, shared, func(c *inbox.Config) {
			c.Grace, c.LeaseDuration = grace, time.Hour
			c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
				if e.Attempt == 1 && string(e.Key) == "retried" {
					return errBroken
				}
				began <- struct{}{}
				select {
				case <-release:
					return effect(ctx, tx, e)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		stop := run(t, p)
		handle(t, p, makeEvent(0, "retried", "A"))
		<-began
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { result <- p.Handle(ctx, makeEvent(1, "direct", "A")) }()
		<-began
		cancel(errBroken)
		if grace == time.Minute {
			close(release)
			stop()
			if err := <-result; err != nil {
				t.Errorf("Handle = %v", err)
			}
			if len(effects(t, db, "retried")) != 1 || len(effects(t, db, "direct")) != 1 || countUnprocessed(t, db) != 0 {
				t.Error("the attempts could not finish")
			}
			continue
		}
		if err := <-result; !errors.Is(err, errBroken) {
			t.Errorf("Handle = %v, want the cause of its context", err)
		}
		stop()
		leased := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM inbox_events WHERE leased_by IS NOT NULL OR attempts <> 1`)
		if leased != 0 || countUnprocessed(t, db) != 1 {
			t.Errorf("%d of %d events are leased, or have their end counted as a failure", leased, countUnprocessed(t, db))
		}
	}
}

// While MaxWaiting events wait, Handle blocks.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	p := processor(t, pool(t, db), func(c *inbox.Config) { c.MaxWaiting = 2 })
	handle(t, p, makeEvent(0, "k", "B"), makeEvent(1, "k", "A"), makeEvent(2, "k", "A"))
	stop := run(t, p)
	wait.For(t, "it is full", func() bool { return p.Stat().Full })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errBroken)
	defer cancel()
	if err := p.Handle(ctx, makeEvent(3, "other", "A")); !errors.Is(err, errBroken) {
		t.Errorf("Handle = %v, want it to wait until its context ends", err)
	}
	if got := p.Stat(); got.Types[""].Backlog.Parked != 1 || got.Types["A"].Backlog.Waiting != 2 || got.Types["A"].Backlog.OldestWaiting <= 0 {
		t.Errorf("Stat = %+v", got)
	}
	stop()
	db.Exec(t, `TRUNCATE inbox_events`)
	run(t, p)
	handle(t, p, makeEvent(3, "other", "A"))
}

// A restart of the database loses no event.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{})
	db := database(t, srv, migrations.Config{})
	shared := pool(t, db)
	p := processor(t, shared, nil)
	run(t, p)
	handle(t, p, makeEvent(0, "k", "A"))
	if err := srv.Immediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := makeEvent(1, "k", "A")
	result := make(chan error, 1)
	go func() { result <- p.Handle(t.Context(), e) }()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("Handle = %v", err)
	}
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if n := len(effects(t, db, "k")); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	p := processor(t, pool(t, db), nil)
	run(t, p)
	wait.For(t, "it runs", func() bool { return p.Stat().Running })
	if err := p.Run(t.Context()); err == nil {
		t.Error("a second Run returns no error")
	}
}

// Errors that a retry cannot fix are returned at once.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil string
		want  error
	}{
		"no table":  {`DROP TABLE inbox_events`, inbox.ErrNoTable},
		"old table": {`ALTER TABLE inbox_events DROP COLUMN due_at CASCADE, DROP COLUMN lane CASCADE`, inbox.ErrOldTable},
	} {
		db := database(t, pgtest.Server(t), migrations.Config{})
		p := processor(t, pool(t, db), nil)
		db.Exec(t, test.spoil)
		if err := p.Handle(t.Context(), makeEvent(0, "k", "A")); !errors.Is(err, test.want) {
			t.Errorf("%s: Handle = %v", name, err)
		}
		if err := p.Run(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: Run = %v", name, err)
		}
		var problem *inbox.EventError
		if err := p.Handle(t.Context(), inbox.Event{Topic: "orders", Offset: 7}); !errors.As(err, &problem) ||
			err.Error() != "inbox: orders[0] at offset 7: the record has no header id" {
			t.Errorf("Handle = %v", err)
		}
	}
}

// The GRANT statements of docs/inbox.md are all that a role needs.
func TestRights(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	role := "poor_" + db.Name
	page, err := os.ReadFile("../docs/inbox.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := regexp.MustCompile("(?s)```sql\n(CREATE ROLE .*?)```").FindSubmatch(page)
	if grants == nil {
		t.Fatal("docs/inbox.md has no GRANT statements")
	}
	db.Exec(t, strings.ReplaceAll(string(grants[1]), "notification_service", role)+`GRANT INSERT ON effects TO `+role)
	defer db.Exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User = role
	shared, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	p := processor(t, shared, failingOnce(func(context.Context, pgx.Tx, inbox.Event) error { return nil }))
	stop := run(t, p)
	defer stop()
	parked := makeEvent(0, "parked", "B")
	handle(t, p, makeEvent(1, "k", "A"), makeEvent(2, "k", "A"), parked)
	wait.For(t, "the others are done", func() bool { return countUnprocessed(t, db) == 1 })
	if n, err := (inbox.Store{}).RetryAll(t.Context(), shared, "test"); err != nil {
		t.Errorf("RetryAll = %d, %v", n, err)
	}
	if err := (inbox.Store{}).Discard(t.Context(), shared, "test", parked.ID); err != nil {
		t.Error(err)
	}
	if n := len(effects(t, db, "k")); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// At most Workers events are retried at the same time, however many are due.
func TestWorkers(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	var now, most atomic.Int32
	p := processor(t, pool(t, db), func(c *inbox.Config) {
		c.Workers = 2
		c.Handlers["A"] = func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			if e.Attempt == 1 {
				return errBroken
			}
			n := now.Add(1)
			defer now.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.02)`); err != nil {
				return err
			}
			return effect(ctx, tx, e)
		}
	})
	for n := range 30 {
		handle(t, p, makeEvent(n, fmt.Sprint(n), "A"))
	}
	run(t, p)
	wait.For(t, "nothing waits", func() bool { return countUnprocessed(t, db) == 0 })
	if n := pgtest.QueryRow[int](t, db, `SELECT count(DISTINCT event_id) FROM effects`); n != 30 || most.Load() != 2 {
		t.Errorf("%d effects by %d attempts at a time, want 30 by 2", n, most.Load())
	}
}
