package position

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Timeout limits an attempt to use the store.
const Timeout = 5 * time.Second

// ErrNoStore means that the store did not respond.
var ErrNoStore = errors.New("the position store does not respond")

// Try calls use, which reads from a store or writes to it, once. It returns ErrNoStore if the store does not respond within limit.
func Try(ctx context.Context, limit time.Duration, use func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := use(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil || errors.Is(err, sink.ErrUnreachable):
		return fmt.Errorf("%w: %w", ErrNoStore, err)
	}
	return err
}
