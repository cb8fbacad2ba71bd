package relay

import (
	"context"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// checkPublished returns an error if the publication has left rows out since the position record was written, while no relay read
// the catalog: a relay that reads the WAL of that time does not get them, and does not notice. Every start returns it until the
// operator has accepted the gap. published is [catalog.State.CheckPublished].
func (r *Relay) checkPublished(ctx context.Context, found *storeState, s checkpoint.Server, published func(recorded string) error) error {
	if found.position == nil || found.position.SystemID != s.SystemID {
		return nil
	}
	err := published(found.position.Publication)
	if err == nil || !r.positions.acceptGap {
		return err
	}
	r.log.WarnContext(ctx, "gap accepted, rows that the publication left out may not have been delivered", slog.Any("reason", err))
	return nil
}

// publication returns what a record says about the publication.
func (w *positionWriter) publication() string {
	if p := w.published.Load(); p != nil {
		return *p
	}
	return ""
}
