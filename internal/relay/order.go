package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// orderDelay is how long the first records have the broker for themselves.
const orderDelay = time.Second

// checkOrder logs a warning if the broker does not reject an older relay. It runs beside tenures, once in
// all, and does not ask the fence, as position writes do not: what it writes is no row, and nobody reads
// it. It returns nil, because a failure says nothing about the broker.
func (r *Relay) checkOrder(ctx context.Context) error {
	if r.orderChecked || r.positions.store == nil || pause(ctx, orderDelay) != nil {
		return nil
	}
	r.orderChecked = true
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := r.positions.store.CheckOrder(limited)
	if errors.Is(err, sink.ErrOlderAccepted) {
		r.log.WarnContext(ctx, "the broker accepts records of an older relay",
			slog.String("risk", "after a freeze or a network partition, they can come after those of a newer relay: only the relay's own fence limits that"),
			slog.String("see", "docs/architecture.md#one-slot-several-relays"))
		return nil
	}
	r.log.DebugContext(ctx, "order of relays checked", slog.Any("err", err))
	return nil
}
