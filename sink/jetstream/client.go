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

// A client is the [sink.Sink] of a NATS cluster. Its Writers have connections of their own.
type client struct {
	cfg     Config
	log     *slog.Logger
	stats   *lane.Stats
	control *control
}

// Open implements [sink.Broker]. It connects to a server, logs in, and checks that JetStream is enabled for the account.
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	options := lane.Options{
		Broker: strings.Join(c.hosts(), ","), WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes, Prepare: prepare,
	}
	stats := lane.NewStats(options)
	s := &client{cfg: c, log: log, stats: stats, control: newControl(c, stats, log)}
	if err := s.control.firstContact(ctx); err != nil {
		s.control.close()
		return nil, err
	}
	return s, nil
}

// firstContact connects and checks that JetStream is there.
func (c *control) firstContact(ctx context.Context) error {
	err := lane.Retry(ctx, c.stats, c.log, func(ctx context.Context) error {
		return c.use(ctx, func(ctx context.Context, l *link) error {
			err := l.call(ctx, func(ctx context.Context) error {
				_, err := l.js.AccountInfo(ctx)
				return err
			})
			switch {
			case errors.Is(err, errDenied): // it need not see the account
				return nil
			case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
				errors.Is(err, nats.ErrNoResponders):
				return errNoJetStream
			}
			return err
		})
	})
	if errors.Is(err, sink.ErrUnreachable) {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return err
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return lane.NewWriter(cfg, newTransport(c.cfg, c.stats), c.stats, c.log)
}

// CheckDestinations implements [sink.Sink]. JetStream does not say whether the user may publish to a subject.
func (c *client) CheckDestinations(ctx context.Context, subjects ...string) error {
	var absent []string
	for _, subject := range subjects {
		if why := (Names{}).Illegal(subject); why != "" {
			return fmt.Errorf("destination %q %s", subject, why)
		}
		name := ""
		err := c.control.retry(ctx, func(ctx context.Context, l *link) (err error) {
			name, err = streamOf(ctx, l, subject)
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("look up the stream of %s: %w", subject, err)
		case name == "":
			absent = append(absent, subject)
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w: %s", adviseMissing(absent[0]), strings.Join(absent, ", "))
	}
	return nil
}

// Stat implements [sink.Sink].
func (c *client) Stat() sink.Stat { return c.stats.Stat() }

// Close implements [sink.Sink].
func (c *client) Close() error {
	c.control.close()
	return nil
}
