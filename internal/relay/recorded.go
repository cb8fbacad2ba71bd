package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// Recorded returns the position record of a relay, or nil if there is none. It uses Sink, Name,
// PositionTopic and StartupTimeout of cfg.
func Recorded(ctx context.Context, cfg Config, log *slog.Logger) (*checkpoint.Position, error) {
	if cfg.PositionTopic == "" {
		return nil, nil //nolint:nilnil // without a position topic there is no record
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().StartupTimeout)
	defer cancel()
	reached, err := cfg.Sink.Open(ctx, log)
	if err != nil {
		return nil, err
	}
	store, err := reached.OpenPositions(ctx, cfg.PositionTopic, cfg.Name)
	if err != nil {
		return nil, errors.Join(err, reached.Close())
	}
	found, err := newPositionWriter(store, false, log).readStore(ctx)
	if err = errors.Join(err, reached.Close()); err != nil {
		return nil, err
	}
	return found.position, nil
}
