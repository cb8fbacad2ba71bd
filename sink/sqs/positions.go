package sqs

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/positionfile"
)

// OpenPositions implements [sink.Sink]. A queue is no place for a position, so store is a local file.
func (c *client) OpenPositions(ctx context.Context, store, name string) (sink.PositionStore, error) {
	p, err := positionfile.Open(ctx, positionfile.Config{Path: store, Name: name, Log: c.log, Attempt: c.stats.Attempt})
	if err != nil {
		return nil, err
	}
	return p, nil
}
