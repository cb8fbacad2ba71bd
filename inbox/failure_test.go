package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The error of a handler decides whether and when the event is retried.
func TestErrorsOfHandlers(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	for name, test := range map[string]struct {
		handler inbox.Handler
		parked  bool
		after   time.Duration // at least
	}{
		"permanent": {func(context.Context, pgx.Tx, inbox.Event) error {
			return fmt.Errorf("wrapped: %w", inbox.Permanent(errBroken))
		}, true, 0},
		"not JSON": {inbox.JSON(func(context.Context, pgx.Tx, inbox.Event, struct{ N string }) error { return nil }), true, 0},
		"later": {func(context.Context, pgx.Tx, inbox.Event) error {
			return fmt.Errorf("wrapped: %w", inbox.RetryAfter(time.Hour, errBroken))
		}, false, 59 * time.Minute},
		"other": {func(context.Context, pgx.Tx, inbox.Event) error { return errBroken }, false, 0},
	} {
		var failures []inbox.Failure
		p := processor(t, shared, func(c *inbox.Config) {
			c.Handlers["A"] = test.handler
			c.OnFailure = func(_ context.Context, f inbox.Failure) { failures = append(failures, f) }
		})
		e := makeEvent(0, name, "A")
		handle(t, p, e)
		found := waitingEvents(t, shared)[0]
		if found.ParkedAt.IsZero() == test.parked || test.after > 0 && found.DueAt.Before(found.ReceivedAt.Add(test.after)) {
			t.Errorf("%s: parked at %s, due at %s", name, found.ParkedAt, found.DueAt)
		}
		if len(failures) != 1 || failures[0].Event.ID != e.ID || failures[0].Event.Attempt != 1 || failures[0].Parked != test.parked ||
			failures[0].RetryIn < test.after || name != "not JSON" && !errors.Is(failures[0].Err, errBroken) {
			t.Errorf("%s: failures = %+v", name, failures)
		}
		db.Exec(t, `TRUNCATE inbox_events`)
	}
	if inbox.Permanent(nil) != nil || inbox.RetryAfter(time.Second, nil) != nil {
		t.Error("nil is an error")
	}
}

// Each failed attempt is logged, and the success after failures too.
func TestAttemptsAreLogged(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	var log rig.Log
	p := processor(t, pool(t, db), func(c *inbox.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Handlers["A"] = func(_ context.Context, _ pgx.Tx, e inbox.Event) error {
			if e.Attempt < 3 || string(e.Key) == "never" {
				return errBroken
			}
			return nil
		}
	})
	run(t, p)
	works, never := makeEvent(4, "k", "A"), makeEvent(5, "never", "A")
	handle(t, p, works, never)
	wait.For(t, "one event is parked", func() bool { return p.Stat().Types["A"].Parked == 1 && p.Stat().Types["A"].Handled == 1 })
	common := func(e inbox.Event, attempt int) string {
		return fmt.Sprintf("consumer=test type=A id=%s topic=orders partition=0 offset=%d attempt=%d", e.ID, e.Offset, attempt)
	}
	wait.For(t, "all lines", func() bool {
		return strings.Contains(log.String(), "event parked") && strings.Contains(log.String(), "event handled")
	})
	for _, want := range []string{
		`level=WARN msg="inbox: attempt failed" ` + common(works, 1) + ` err="the mail server is down" retry_in=`,
		`level=WARN msg="inbox: attempt failed" ` + common(works, 2) + ` err="the mail server is down" retry_in=`,
		`level=INFO msg="inbox: event handled after failed attempts" ` + common(works, 3) + "\n",
		`level=ERROR msg="inbox: event parked" ` + common(never, 3) + ` err="the mail server is down"` + "\n",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
}

// A failed event is retried when its delay is over, and not at the next poll.
func TestRetryWhenDue(t *testing.T) {
	t.Parallel()
	p := processor(t, pool(t, database(t, pgtest.Server(t), migrations.Config{})), func(c *inbox.Config) {
		c.PollInterval = time.Hour
		c.RetryDelays = []time.Duration{50 * time.Millisecond, 50 * time.Millisecond}
		c.Handlers["A"] = func(_ context.Context, _ pgx.Tx, e inbox.Event) error {
			if e.Attempt < 3 {
				return inbox.RetryAfter(50*time.Millisecond, errBroken)
			}
			return nil
		}
	})
	run(t, p)
	handle(t, p, makeEvent(0, "k", "A"))
	wait.For(t, "the third attempt", func() bool { return p.Stat().Types["A"].Handled == 1 })
}
