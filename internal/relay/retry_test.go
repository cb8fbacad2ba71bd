package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// On the first contact the relay fails early, later it retries for longer. It logs once what it waits for.
func TestRetryWaitsAsLongAsTheErrorMayHeal(t *testing.T) {
	for name, tc := range map[string]struct {
		err          error
		first, later time.Duration // how long the relay retries; forever: without a limit
	}{
		"slot lost":      {replication.ErrSlotLost, 0, 0},
		"password":       {replication.ErrAccess, 0, limit},
		"the broker's":   {sink.ErrAccess, 0, limit},
		"anything else":  {errors.New("never heard of"), 0, limit},
		"server starts":  {replication.ErrUnreachable, limit, forever},
		"no free sender": {replication.ErrBusy, limit, forever},
		"slot in use":    {replication.ErrSlotInUse, forever, forever},
		"fenced":         {sink.ErrSuperseded, limit, forever},
	} {
		for _, strict := range []bool{true, false} {
			want := tc.later
			if strict {
				want = tc.first
			}
			t.Run(fmt.Sprintf("%s, strict %t", name, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log strings.Builder
					r := &retry{waits: &waitLog{log: slog.New(slog.NewTextHandler(&log, nil))}, limit: limit, strict: strict}
					began := time.Now()
					var err error
					for err == nil && bubble.Since(began) < forever {
						err = r.backOff(t.Context(), tc.err)
					}
					waited := bubble.Since(began)
					switch {
					case want == forever && err != nil:
						t.Errorf("given up after %s: %v", waited, err)
					case want != forever && (!errors.Is(err, tc.err) || waited < want || waited > want+maxBackoff):
						t.Errorf("%v after %s, want %s", err, waited, want)
					}
					lines := 0
					if want > 0 {
						lines = 1
					}
					awaited := "waiting for the source"
					switch {
					case errors.Is(tc.err, sink.ErrAccess):
						awaited = "waiting for the broker"
					case errors.Is(tc.err, sink.ErrSuperseded):
						awaited = "fenced, taking the relay's identity back"
					case errors.Is(tc.err, replication.ErrSlotInUse):
						awaited = "level=INFO msg=\"standby: another process uses the slot\""
					}
					if n := strings.Count(log.String(), awaited); n != lines {
						t.Errorf("logged %d times, want %d:\n%s", n, lines, log.String())
					}
				})
			})
		}
	}
}

const (
	limit   = 30 * time.Second // Config.StartupTimeout
	forever = time.Hour
)

// The relay logs a waiting state when it starts: again after it has ended, and again if the cause changes.
func TestRetryLogsEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &retry{waits: &waitLog{log: slog.New(slog.NewTextHandler(&log, nil))}, limit: limit}
		wait := func(err error, times int) {
			for range times {
				if err := r.backOff(t.Context(), err); err != nil {
					t.Fatal(err)
				}
			}
		}
		for port := range 5 {
			wait(fmt.Errorf("%w: read from port %d", replication.ErrUnreachable, 40_000+port), 1)
		}
		inUse := func(pid int) error {
			return fmt.Errorf("%w: %w", replication.ErrSlotInUse, &pgconn.PgError{Code: "55006", Message: fmt.Sprintf(`replication slot "s1" is active for PID %d`, pid)})
		}
		for pid := range 5 { // several active relays take turns
			wait(inUse(17+pid), 1)
		}
		r.reset()
		for range 3 { // a relay that is fenced makes progress in between
			wait(sink.ErrSuperseded, 2)
			r.reset()
		}
		wait(fault.ErrCopyAccepted, 1)
		wait(inUse(29), 5)
		wait(fmt.Errorf("%w; %w: no right to", inUse(29), fault.ErrSenderKept), 5)
		var lines []string
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, line)
		}
		want := []string{
			`level=WARN msg="waiting for the source" err="source unreachable: read from port 40000"`,
			`level=INFO msg="standby: another process uses the slot" pid=17`,
			`level=WARN msg="fenced, taking the relay's identity back" err="superseded by a newer owner" fix="` + fault.Next(sink.ErrSuperseded) + `"`,
			`level=INFO msg="standby: another process uses the slot" pid=29`,
			fmt.Sprintf(`level=WARN msg="waiting for the source" err=%q`, inUse(29).Error()+"; "+fault.ErrSenderKept.Error()+": no right to"),
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A standby that has waited for long keeps waiting while Postgres is down, for example during a failover. The limit
// for the first contact no longer applies to it.
func TestStandbySurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &retry{waits: &waitLog{log: slog.New(slog.DiscardHandler)}, limit: 30 * time.Second, strict: true}
		for began := time.Now(); bubble.Since(began) < time.Hour; {
			if err := r.backOff(t.Context(), replication.ErrSlotInUse); err != nil {
				t.Fatal(err)
			}
		}
		for began := time.Now(); bubble.Since(began) < 5*time.Minute; {
			if err := r.backOff(t.Context(), replication.ErrUnreachable); err != nil {
				t.Fatalf("after %s without Postgres: %v", bubble.Since(began), err)
			}
		}
		if err := r.backOff(t.Context(), replication.ErrSlotMissing); err == nil {
			t.Error("a missing slot is retried")
		}
	})
}

// The relay logs the end of a session with its cause, except if the next log line names the cause because the relay
// waits for it.
func TestSessionEndIsLoggedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		fail bool // FailIfSlotInUse
		want string
	}{
		"clean stop":     {nil, false, ""},
		"lost":           {replication.ErrUnreachable, false, ""},
		"final":          {replication.ErrSlotLost, false, ` err="replication slot invalidated"`},
		"standby":        {replication.ErrSlotInUse, false, ""},
		"is to be alone": {replication.ErrSlotInUse, true, ` err="replication slot in use"`},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			r := &Relay{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: Config{FailIfSlotInUse: tc.fail}}
			r.logEnd(t.Context(), 0x20, tc.err)
			if want := `msg="session ended" confirmed=0/20` + tc.want + "\n"; !strings.HasSuffix(log.String(), want) {
				t.Errorf("%s, want %s", &log, want)
			}
		})
	}
}
