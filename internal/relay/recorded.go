package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Recorded returns the position record of a relay, or nil if there is none. It uses Sink, Name,
// Positions and StartupTimeout of cfg. It changes nothing.
func Recorded(ctx context.Context, cfg Config, log *slog.Logger) (*checkpoint.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().StartupTimeout)
	defer cancel()
	found, err := readPositions(ctx, cfg, newPositionWriter(nil, false, log))
	if err != nil {
		return nil, err
	}
	return found.position, nil
}

// readPositions reads what a relay stores, for positions to parse.
func readPositions(ctx context.Context, cfg Config, positions *positionWriter) (*storeState, error) {
	values, err := cfg.Positions.Read(ctx, cfg.Sink, cfg.Name, positions.log)
	if err != nil {
		return nil, err
	}
	return positions.parseStore(ctx, values)
}

// openPositions opens the position store of a relay that does not run in this process. The Sink must be closed.
func openPositions(ctx context.Context, cfg Config, log *slog.Logger) (sink.Sink, *positionWriter, error) {
	reached, err := cfg.Sink.Open(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	store, err := cfg.Positions.Open(ctx, reached, cfg.Name, new(position.Stall), log)
	if err != nil {
		return nil, nil, errors.Join(err, reached.Close())
	}
	return reached, newPositionWriter(store, false, log), nil
}
