package relay

import (
	"context"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
)

// Recorded returns the position record of a relay, or nil if there is none. It uses Sink, Name,
// Positions and StartupTimeout of cfg. It changes nothing.
func Recorded(ctx context.Context, cfg Config, log *slog.Logger) (*checkpoint.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.WithDefaults().StartupTimeout)
	defer cancel()
	found, err := position.NewStore(cfg.Positions, cfg.Name, log).ReadFrom(ctx, cfg.Sink)
	if err != nil {
		return nil, err
	}
	return found.Position, nil
}
