package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A client is the [sink.Sink], the [sink.Reader] and the place of the position stores of a NATS cluster. It has one connection, for
// everything but records: a Writer has its own. The client connects when it is used, and again when the connection was lost.
type client struct {
	*lane.Base

	cfg   Config
	inUse chan struct{} // cap 1: held by who uses link
	link  *link         // nil: not connected
}

// newClient returns a client that has contacted nobody.
func (c Config) newClient(log *slog.Logger) (*client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	options := lane.Options{
		Broker: strings.Join(c.hosts(), ","), ReachAdvice: reachAdvice, Illegal: Names{}.Illegal,
		WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes,
	}
	return &client{Base: lane.NewBase(options, log), cfg: c, inUse: make(chan struct{}, 1)}, nil
}

// Open implements [sink.Broker]. It connects to a server, logs in, and checks that JetStream is enabled for the account.
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	cl, err := c.newClient(log)
	if err != nil {
		return nil, err
	}
	if err := cl.retry(ctx, findJetStream); err != nil {
		return nil, errors.Join(err, cl.Close())
	}
	return cl, nil
}

// findJetStream returns an error if JetStream is not enabled for the account.
func findJetStream(ctx context.Context, l *link) error {
	_, err := call(ctx, l, l.js.AccountInfo)
	switch {
	case errors.Is(err, errDenied): // it need not see the account
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return errNoJetStream
	}
	return err
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return c.NewWriterOver(newTransport(c.cfg, c.Base), cfg)
}

// CheckDestinations implements [sink.Sink]. JetStream does not say whether the user may publish to a subject.
func (c *client) CheckDestinations(ctx context.Context, subjects ...string) error {
	return c.CheckEach(ctx, subjects, func(ctx context.Context, subject string) error {
		return c.use(ctx, func(ctx context.Context, l *link) error {
			name, err := streamOf(ctx, l, subject)
			if err == nil && name == "" {
				return adviseMissing(subject)
			}
			return err
		})
	})
}

// use calls f with a link. Only one call runs at a time. The error of f has its class.
func (c *client) use(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	select {
	case c.inUse <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.inUse }()
	if c.link != nil && c.link.failure() != nil {
		_ = c.Close()
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
	return withClass(err)
}

// retry is use, with retries of transient errors.
func (c *client) retry(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	return c.Retry(ctx, func(ctx context.Context) error { return c.use(ctx, f) })
}

// Close implements [sink.Sink] and [sink.Reader].
func (c *client) Close() error {
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
	return nil
}

// withClass returns err, as one of the class sink.ErrFatal if the server rejects the request itself.
func withClass(err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.Code >= 500 || api.Code == 404 || api.Code == 408 || api.Code == 429 {
		return err
	}
	return fmt.Errorf("%w: %w", errFatal, err)
}
