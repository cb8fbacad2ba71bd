package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Recorded returns the position record of a relay, or nil if there is none. It uses Sink, Name,
// PositionTopic and StartupTimeout of cfg.
func Recorded(ctx context.Context, cfg Config, log *slog.Logger) (*checkpoint.Position, error) {
	if cfg.PositionTopic == "" {
		return nil, nil //nolint:nilnil // without a position topic there is no record
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().StartupTimeout)
	defer cancel()
	reached, positions, err := openPositions(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	found, err := positions.readStore(ctx)
	if err = errors.Join(err, reached.Close()); err != nil {
		return nil, err
	}
	return found.position, nil
}

// openPositions opens the position topic of a relay that does not run in this process. The Sink must be closed.
func openPositions(ctx context.Context, cfg Config, log *slog.Logger) (sink.Sink, *positionWriter, error) {
	reached, err := cfg.Sink.Open(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	store, err := reached.OpenPositions(ctx, cfg.PositionTopic, cfg.Name)
	if err != nil {
		return nil, nil, errors.Join(err, reached.Close())
	}
	return reached, newPositionWriter(store, false, log), nil
}
