package relay

import (
	"context"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// checkPublished returns an error if the publication has left rows out since the position record was written, while no relay read
// the catalog: a relay that reads the WAL of that time does not get them, and does not notice. Every start returns it until the
// operator has accepted the gap.
func (r *Relay) checkPublished(ctx context.Context, found *storeState, s checkpoint.Server) error {
	if found.position == nil || found.position.SystemID != s.SystemID {
		return nil
	}
	err := r.history.CheckPublished(found.position.Publication)
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
