package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Recorded returns the position record of a relay, or nil if there is none. It uses Sink, Name,
// PositionTopic and StartupTimeout of cfg. It writes nothing if the broker has a [sink.PositionReader].
// Otherwise it opens the store, and creates one that is missing.
func Recorded(ctx context.Context, cfg Config, log *slog.Logger) (*checkpoint.Position, error) {
	if cfg.PositionTopic == "" {
		return nil, nil //nolint:nilnil // without a position topic there is no record
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.withDefaults().StartupTimeout)
	defer cancel()
	if found, err := readPositions(ctx, cfg, newPositionWriter(nil, false, log)); !errors.Is(err, errors.ErrUnsupported) {
		if err != nil {
			return nil, err
		}
		return found.position, nil
	}
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

// readPositions reads what a broker with a [sink.PositionReader] stores, for positions to parse. For another broker, the error
// wraps [errors.ErrUnsupported].
func readPositions(ctx context.Context, cfg Config, positions *positionWriter) (*storeState, error) {
	opened, err := sink.OpenReader(cfg.Sink, positions.log)
	if err != nil {
		return nil, err
	}
	reader, ok := opened.(sink.PositionReader)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, opened.Close())
	}
	values, err := reader.ReadPositions(ctx, cfg.PositionTopic, cfg.Name)
	if err = errors.Join(err, reader.Close()); err != nil {
		return nil, err
	}
	return positions.parseStore(ctx, values)
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
