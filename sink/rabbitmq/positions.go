package rabbitmq

import (
	"context"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/positionfile"
)

// OpenPositions implements [sink.Sink]. RabbitMQ has no place for a value that is replaced and read back, so store is a
// file of this host.
func (b *broker) OpenPositions(ctx context.Context, store, name string) (sink.PositionStore, error) {
	p, err := positionfile.Open(ctx, positionfile.Config{Path: store, Name: name, Log: b.log, Attempt: b.stats.Attempt})
	if err != nil {
		return nil, fmt.Errorf("open the positions in %s: %w", store, err)
	}
	return p, nil
}
