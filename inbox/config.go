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

// A DB begins transactions. *pgxpool.Pool is one, and is what a [Processor] needs: several goroutines
// use it at a time. *pgx.Conn is one too, and is enough for a [Store].
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// An UnknownTypePolicy determines what happens to events whose type has no handler.
type UnknownTypePolicy string

const (
	// ParkUnknown parks the event. Later events of its key wait behind it. Deploy a handler for the
	// type, then run `outbox-cdc inbox retry`.
	ParkUnknown UnknownTypePolicy = "park"
	// IgnoreUnknown skips the event. Only a counter shows it: see [TypeStat].
	IgnoreUnknown UnknownTypePolicy = "ignore"
)

// Config configures a [Processor]. Consumer and Handlers are required.
type Config struct {
	// Consumer is the name of the service. All instances have the same name. Do not change it: a
	// consumer with another name processes every event again.
	Consumer string
	// Handlers has the handler of each event type.
	Handlers map[string]Handler
	// OnUnknownType determines what happens to events of other types. Empty means ParkUnknown.
	OnUnknownType UnknownTypePolicy
	// ParseEvent sets ID and Type of an event from its other fields. Nil means
	// [Event.ParseHeaders], which is right for records of the relay. An event for which it returns
	// an error stops the adapter: see [Processor.Handle].
	ParseEvent func(e *Event) error
	// Schema is the schema of the inbox tables, as in the catalog. Empty means the search_path.
	Schema string

	// RetryDelays has the longest delay after each failed attempt. The actual delay is random, from
	// zero to that, so that events that failed together are not retried together. If the attempt
	// after the last delay fails, the event is parked. Nil means 1 s, 5 s, 30 s, 2 min and 10 min:
	// six attempts. An empty slice parks events at the first failure.
	RetryDelays []time.Duration
	// Timeout limits one attempt. Zero means 30 s.
	Timeout time.Duration
	// Grace is how long a running handler may continue after the context of Handle or Run is done, for
	// example because the service stops or the partition is revoked. Zero means 10 s.
	Grace time.Duration

	// Workers is how many events are retried at the same time. Each uses a connection. Zero means 4.
	Workers int
	// LeaseDuration is how long a retried event belongs to its processor. The processor renews the
	// lease while the attempt runs. If the processor crashes, another one retries the event after
	// this time. Zero means 30 s.
	LeaseDuration time.Duration
	// PollInterval is how often the processor looks for due events that other processors or
	// `outbox-cdc inbox retry` left in inbox_events, and for its own whose delay was longer than a
	// minute. Zero means 1 s.
	PollInterval time.Duration
	// MaxWaiting limits the events of all instances that wait in inbox_events. At the limit Handle
	// blocks, and further events stay in the broker. They are counted every 5 s, so there can be a few
	// more. Zero means 100,000.
	MaxWaiting int

	// OnFailure is called after each failed attempt, for example to report it to an error tracker.
	// It runs on the goroutine of the attempt and must not panic. Nil means none.
	OnFailure func(ctx context.Context, f Failure)
	// Logger gets a line for each failed attempt, for parked events, for a database that is
	// unavailable, and from the adapter for the consumer group. Nil means slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Handlers = maps.Clone(c.Handlers)
	c.OnUnknownType = cmp.Or(c.OnUnknownType, ParkUnknown)
	if c.ParseEvent == nil {
		c.ParseEvent = (*Event).ParseHeaders
	}
	if c.RetryDelays == nil {
		c.RetryDelays = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	}
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.Workers = cmp.Or(c.Workers, 4)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 30*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 100_000)
	if c.OnFailure == nil {
		c.OnFailure = func(context.Context, Failure) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default() //nolint:forbidigo // a service that sets no logger must still see failed attempts
	}
	return c
}

func (c Config) validate() error {
	if err := checkConsumer(c.Consumer); err != nil {
		return err
	}
	if len(c.Handlers) == 0 {
		return errors.New("inbox: Config.Handlers is empty")
	}
	for name, handler := range c.Handlers {
		if handler == nil {
			return fmt.Errorf("inbox: Config.Handlers: the handler of %q is nil", name)
		}
	}
	if c.OnUnknownType != ParkUnknown && c.OnUnknownType != IgnoreUnknown {
		return fmt.Errorf("inbox: Config.OnUnknownType: %q is neither park nor ignore", string(c.OnUnknownType))
	}
	for _, d := range c.RetryDelays {
		if d < 0 {
			return fmt.Errorf("inbox: Config.RetryDelays: %s is negative", d)
		}
	}
	for name, d := range map[string]time.Duration{
		"Timeout": c.Timeout, "Grace": c.Grace, "LeaseDuration": c.LeaseDuration, "PollInterval": c.PollInterval,
	} {
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
