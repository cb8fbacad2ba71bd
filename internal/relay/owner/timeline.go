package owner

import (
	"context"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// serverOf returns the state of the server that streams, without what only its catalog has.
func serverOf(s *Session, stream *replication.Stream) checkpoint.Server {
	return checkpoint.Server{
		SystemID: s.id.system.ID, Timeline: s.id.system.Timeline, History: checkpoint.History(stream.History()), Slot: s.id.slot,
		Standby: stream.Standby(),
	}
}

// followServer has what the ownership reads from stream be of the server of stream.
func (o *Owner) followServer(ctx context.Context, stream *replication.Stream) {
	o.positions.Timeline.StartSession(ctx, stream)
	o.standby = stream.Standby()
}

// WarnLostTail logs, once per promotion, the range of delivered rows that only the old server has. The
// range ends at the record or, if this process held the slot on the old server, at the position that it
// had read. What it had read from a standby server may be from after that server's own promotion.
func (o *Owner) WarnLostTail(ctx context.Context, record *checkpoint.Position, s checkpoint.Server) {
	if record == nil {
		return
	}
	delivered := *record
	if t := o.ownership; t != nil && !o.standby && t.id.system.Timeline == record.Timeline {
		delivered.EndLSN = max(delivered.EndLSN, o.cfg.Pump.Progress.Counts().Received)
	}
	fork, lost := delivered.LostTail(s)
	if !lost || o.warnedTimeline == s.Timeline {
		return
	}
	o.warnedTimeline = s.Timeline
	o.log.WarnContext(ctx, "the promoted server lacks the end of the old WAL, the broker may have records of rows that this server does not have",
		slog.Int("timeline", int(record.Timeline)), slog.String("from", fork.String()), slog.String("to", delivered.EndLSN.String()),
		slog.Time("recorded_at", record.WrittenAt))
}
