package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The first attempt finds out why the server is unreachable. StartupTimeout interrupts a later attempt. The relay
// returns the error of the first attempt, not the timeout.
func TestFirstContactReportsTheFirstAttemptsError(t *testing.T) {
	need.FullRun(t, "it waits until an attempt is given up")
	t.Parallel()
	_, err := contactServer(t, 2*leastAttempt, 0, 0)
	if !errors.Is(err, replication.ErrUnreachable) || strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v, want the error of the first attempt", err)
	}
}

// One attempt on an unresponsive connection does not use up the time of all attempts.
func TestFirstContactLeavesASilentConnection(t *testing.T) {
	t.Parallel()
	if attempts, _ := contactServer(t, 3*leastAttempt, -1, 2); attempts < 2 {
		t.Errorf("%d attempts", attempts)
	}
}

// contactServer starts a relay that connects to a server. The server closes the connection with the index closes,
// and does not respond on the others. It stops the relay after the given number of connections, unless that is 0.
// contactServer returns the number of connections and the relay's error.
func contactServer(t *testing.T, timeout time.Duration, closes, enough int) (attempts int, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends when the listener is closed
		defer close(ended)
		for ; ; attempts++ {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			if attempts+1 == enough {
				cancel()
			}
			if attempts == closes {
				_ = conn.Close()
				continue
			}
			defer func() { _ = conn.Close() }() // closed only at the end, never answered
		}
	}()
	source, err := pgconn.ParseConfig("postgres://u@" + server.Addr().String() + "/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Name:           "contact",
		Source:         replication.Config{Conn: source, Publication: "p", Slot: "s"},
		Sink:           kafka.Config{Brokers: kafkatest.Fake(t).Addrs},
		Route:          encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()},
		StartupTimeout: timeout,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(ctx)
	_ = server.Close()
	<-ended
	return attempts, err
}

// While a first start waits for the broker, the relay says why.
func TestFirstContactSaysWhyItWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	source, err := pgconn.ParseConfig("postgres://u@127.0.0.1:1/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Name:   "contact",
		Source: replication.Config{Conn: source, Publication: "p", Slot: "s"},
		Sink:   kafka.Config{Brokers: []string{"127.0.0.1:2"}},
		Route:  encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	wait.For(t, "the reason", func() bool {
		return slices.ContainsFunc(c.Stat().Failures, func(f fault.Failure) bool {
			return f.ExitCode == exit.Sink && strings.Contains(f.Text, "127.0.0.1:2") && strings.Contains(f.Text, "connection refused")
		})
	})
	stop()
	if err := wait.Receive(t, "the relay to end", ended); err != nil {
		t.Error(err)
	}
}

// A dialer may stop at the deadline of its context and return before the context has ended.
func TestAContextIsOverAtItsDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		ctx  context.Context
		over bool
	}{
		"no deadline": {t.Context(), false},
		"in time":     {deadlineContext{t.Context(), time.Now().Add(time.Hour)}, false},
		"late":        {deadlineContext{t.Context(), time.Now()}, true},
	} {
		if got := isOver(tc.ctx); got != tc.over {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A deadlineContext has a deadline, but does not end at it.
type deadlineContext struct {
	context.Context
	at time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.at, true }
