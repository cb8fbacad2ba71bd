package rabbitmq

import (
	"context"
	"log/slog"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A broker implements sink.Sink.
type broker struct {
	*lane.Base

	cfg Config
	log *slog.Logger
}

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	b := &broker{cfg: c, log: log, Base: lane.NewBase(lane.Options{
		Broker: strings.Join(c.Servers, ","), ReachAdvice: reachAdvice, WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes, Outstanding: outstanding,
	}, log)}
	servers := c.newDialer()
	err := b.Retry(ctx, func(ctx context.Context) error {
		k, err := servers.connectAny(ctx)
		if err == nil {
			k.close() // a Writer has connections of its own
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// NewWriter implements [sink.Sink].
func (b *broker) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return b.NewWriterOver(newTransport(b.cfg, b.Base, b.log), cfg)
}

// Close implements [sink.Sink]. A Writer has closed its connections.
func (b *broker) Close() error { return nil }
