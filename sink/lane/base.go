package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Base is what the Sinks of all brokers over this package have in common: it makes their Writers, retries requests that are not
// of a Writer, and has the figures of the Sink. A [sink.Sink] embeds it, and so has Stat. Its methods may be called from any
// goroutine.
type Base struct {
	options    Options
	log        *slog.Logger
	retries    atomic.Int64
	reconnects atomic.Int64
	lost       atomic.Bool // ConnectionLost was called since ConnectionMade
	outage     outage

	mu           sync.Mutex
	destinations map[string]*destinationCounters // at most maxDestinations
	others       destinationCounters             // of all other destinations
	writable     map[uint64]struct{}             // hashes of their names, at most maxWritable
	seed         maphash.Seed                    // of writable
	lastError    string
	lastErrorAt  time.Time
	current      *Writer
}

// NewBase returns the Base of a Sink, whose Writers have the given options.
func NewBase(o Options, log *slog.Logger) *Base {
	return &Base{
		options: o.withDefaults(), log: log, destinations: make(map[string]*destinationCounters),
		writable: make(map[uint64]struct{}), seed: maphash.MakeSeed(),
	}
}

// Retry calls attempt until it succeeds: the first contact of a [sink.Broker], or a later request, for example of a position store.
// It returns an error that wraps [sink.ErrAccess], [sink.ErrMissing], [sink.ErrFatal] or [sink.ErrSuperseded] at once, retries any other one with
// back-off until ctx ends, and then returns an error that wraps [sink.ErrUnreachable]. The context of an attempt ends after
// 10 seconds.
func (b *Base) Retry(ctx context.Context, attempt func(context.Context) error) error {
	var last error // of an attempt that ctx has not ended
	for n := 0; ; n++ {
		err := b.outage.attempt(ctx, attempt)
		if err == nil || isFinal(err) {
			return err
		}
		if last == nil || !isOver(ctx) {
			last = err
		}
		b.RecordError(err)
		if warn, first := b.outage.warns(); warn && first {
			b.log.WarnContext(ctx, "broker not reached yet", slog.String("broker", b.options.Broker), slog.Any("err", err))
		} else if warn {
			b.log.WarnContext(ctx, "request to the broker failed, retrying", slog.String("broker", b.options.Broker), slog.Any("err", err))
		}
		if !sleep(ctx, backoff(n, backoffMax)) {
			err := fmt.Errorf("%w at %s: %w (last cause: %w)", sink.ErrUnreachable, b.options.Broker, context.Cause(ctx), last)
			return sink.Advise(err, b.options.ReachAdvice)
		}
	}
}

// RetryDenied is Retry for a relay that runs. It also retries an error that wraps [sink.ErrAccess] or [sink.ErrFatal]: the relay must
// hold its slot, a rejected login may be one whose secret is being replaced, and an administrator can mend what the broker rejects.
func (b *Base) RetryDenied(ctx context.Context, attempt func(context.Context) error) error {
	return b.Retry(ctx, func(ctx context.Context) error {
		err := attempt(ctx)
		if errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrFatal) {
			return sink.Advise(errors.New(err.Error()), sink.AdviceOf(err))
		}
		return err
	})
}

// CheckEach is [sink.Sink.CheckDestinations] for a broker that is asked about one destination after the other. check returns an
// error that wraps [sink.ErrMissing] if the destination does not exist, and need not name it. Retry calls it.
func (b *Base) CheckEach(ctx context.Context, destinations []string, check func(ctx context.Context, destination string) error) error {
	var missing error
	var absent []string
	for _, name := range destinations {
		if why := b.options.illegal(name); why != "" {
			return fmt.Errorf("destination %q %s", name, why)
		}
		err := b.Retry(ctx, func(ctx context.Context) error { return check(ctx, name) })
		switch {
		case errors.Is(err, sink.ErrMissing):
			missing, absent = cmp.Or(missing, err), append(absent, name)
		case err != nil:
			return fmt.Errorf("destination %s: %w", name, err)
		}
	}
	if missing != nil {
		return fmt.Errorf("%w: %s", missing, strings.Join(absent, ", "))
	}
	return nil
}
