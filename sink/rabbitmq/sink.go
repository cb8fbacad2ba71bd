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
	cfg   Config
	log   *slog.Logger
	stats *lane.Stats
}

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	b := &broker{cfg: c, log: log, stats: lane.NewStats(lane.Options{
		Broker: strings.Join(c.Servers, ","), WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes, Outstanding: outstanding,
	})}
	err := lane.Retry(ctx, b.stats, log, func(ctx context.Context) error {
		k, _, err := c.connectAny(ctx, 0)
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
	return lane.NewWriter(cfg, newTransport(b.cfg, b.stats, b.log), b.stats, b.log)
}

// Stat implements [sink.Sink].
func (b *broker) Stat() sink.Stat { return b.stats.Stat() }

// Close implements [sink.Sink]. A Writer has closed its connections.
func (b *broker) Close() error { return nil }
