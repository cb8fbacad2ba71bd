package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
)

// A DB gives out transactions; a *pgxpool.Pool is one. It is used by several goroutines at a time.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// A Policy says what becomes of events whose type has no handler.
type Policy string

// The policies.
const (
	// Park puts the event into inbox_events, parked, with what comes after it for its key: nothing is
	// lost, and once there is a handler they are run again by command.
	Park Policy = "park"
	// Ignore passes over the event. It leaves no trace but a count.
	Ignore Policy = "ignore"
)

// Config says what a [Processor] does with events. Consumer and Handlers are needed.
type Config struct {
	// Consumer names the service, the same for all its instances and for ever: a consumer of
	// another name processes every event anew.
	Consumer string
	// Handlers are what is done with events, by type.
	Handlers map[string]Handler
	// Unknown is what becomes of the other types. Empty means Park.
	Unknown Policy
	// Schema is where the tables are. Empty means the search_path.
	Schema Schema

	// Delays are how long an event waits at most for its next attempt after each one that failed:
	// the time is drawn anew between nothing and that, so that events that failed together do not
	// come back together. When the attempt after the last delay fails the event is parked. Nil
	// means 1 s, 5 s, 30 s, 2 min and 10 min: six attempts. Empty parks at the first failure.
	Delays []time.Duration
	// Timeout is how long an attempt may take. Zero means 30 s.
	Timeout time.Duration
	// Grace is how long attempts may go on when the processor is to stop, or when the partition
	// goes to another one. Zero means 10 s.
	Grace time.Duration

	// Workers is how many events are tried again at the same time, each on a connection of its own.
	// Zero means 4.
	Workers int
	// Lease is for how long an event that is tried again belongs to its processor; while it works
	// it renews the lease three times as often. When a processor has crashed, others take its events
	// over after that time. Zero means 30 s.
	Lease time.Duration
	// Poll is how often inbox_events is looked at for events that other processors have left
	// behind. Zero means 1 s.
	Poll time.Duration
	// MaxWaiting is how many events may wait in inbox_events, those of all instances counted,
	// before Handle takes no more and lets the rest wait in Kafka. It is looked at every few seconds,
	// so it may be passed a little. Zero means 100,000.
	MaxWaiting int

	// Log receives what a person should know: events that are parked, and a database that cannot
	// be reached. Nil means nobody.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Handlers = maps.Clone(c.Handlers)
	c.Unknown = cmp.Or(c.Unknown, Park)
	if c.Delays == nil {
		c.Delays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	}
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.Workers = cmp.Or(c.Workers, 4)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 100_000)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if err := checkConsumer(c.Consumer); err != nil {
		return err
	}
	if len(c.Handlers) == 0 {
		return errors.New("inbox: Config.Handlers: there is none")
	}
	for name, handler := range c.Handlers {
		if handler == nil {
			return fmt.Errorf("inbox: Config.Handlers: that of %q is nil", name)
		}
	}
	if c.Unknown != Park && c.Unknown != Ignore {
		return fmt.Errorf("inbox: Config.Unknown: %q is not one of park, ignore", string(c.Unknown))
	}
	for _, d := range c.Delays {
		if d < 0 {
			return fmt.Errorf("inbox: Config.Delays: %s is negative", d)
		}
	}
	for name, d := range map[string]time.Duration{"Timeout": c.Timeout, "Grace": c.Grace, "Lease": c.Lease, "Poll": c.Poll} {
		if d < 0 {
			return fmt.Errorf("inbox: Config.%s: %s is negative", name, d)
		}
	}
	for name, n := range map[string]int{"Workers": c.Workers, "MaxWaiting": c.MaxWaiting} {
		if n < 0 {
			return fmt.Errorf("inbox: Config.%s: %d is negative", name, n)
		}
	}
	return nil
}
