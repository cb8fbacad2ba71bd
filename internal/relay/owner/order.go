package owner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// orderDelay is the delay of the check, so that it does not compete with the first records.
const orderDelay = time.Second

// checkOrder logs a warning if a broker that should reject the records of an older relay does not. Other kinds of
// brokers never do: check says so, and a warning would help nobody. It runs once per process, beside an ownership. Like
// position writes, it does not check the fence: it writes no rows, and nobody reads what it writes. It always
// returns nil, because a failed check says nothing about the broker.
func (o *Owner) checkOrder(ctx context.Context) error {
	if o.orderChecked || o.cfg.Place.IsZero() || pause(ctx, orderDelay) != nil {
		return nil
	}
	o.orderChecked = true
	limited, cancel := context.WithTimeout(ctx, position.Timeout)
	defer cancel()
	err := o.cfg.Store.CheckOrder(limited)
	if errors.Is(err, sink.ErrOlderAccepted) {
		o.log.WarnContext(ctx, "the broker accepts records of an older relay",
			slog.String("risk", "after a freeze or a network partition, they can come after those of a newer relay: only the relay's own fence limits that"),
			slog.String("see", "docs/architecture.md#one-slot-several-relays"))
		return nil
	}
	o.log.DebugContext(ctx, "checked whether the broker rejects an older relay", slog.Any("err", err))
	return nil
}
