package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A control is a connection for everything but records. It connects when it is used, and again when the connection was lost.
type control struct {
	cfg   Config
	stats *lane.Stats
	log   *slog.Logger
	inUse chan struct{} // cap 1: held by who uses link
	link  *link         // nil: not connected
}

func newControl(cfg Config, stats *lane.Stats, log *slog.Logger) *control {
	return &control{cfg: cfg, stats: stats, log: log, inUse: make(chan struct{}, 1)}
}

// use calls f with a link. Only one call runs at a time.
func (c *control) use(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	select {
	case c.inUse <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.inUse }()
	if c.link != nil && c.link.failure() != nil {
		c.link.close()
		c.link = nil
	}
	if c.link == nil {
		l, err := c.cfg.dial(ctx)
		if err != nil {
			return err
		}
		c.link = l
	}
	err := f(ctx, c.link)
	if errors.Is(err, errTimeout) {
		c.link.fail(err) // another server may respond
	}
	return err
}

// retry is use, with retries of transient errors.
func (c *control) retry(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	return lane.Retry(ctx, c.stats, c.log, func(ctx context.Context) error { return withClass(c.use(ctx, f)) })
}

// close closes the connection. No call of use runs.
func (c *control) close() {
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
}

// withClass returns err, as one of the class sink.ErrFatal if the server rejects the request itself.
func withClass(err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.Code >= 500 || api.Code == 404 || api.Code == 408 || api.Code == 429 {
		return err
	}
	return fmt.Errorf("%w: %w", errFatal, err)
}

// insist returns err without its class, so that it is retried: the relay runs and must hold its slot, and a rejected login
// may be one whose secret is being replaced.
func insist(err error) error {
	if errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrFatal) {
		return errors.New(err.Error())
	}
	return err
}
