package owner

import (
	"encoding/hex"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/parking/release"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A beginning is where an ownership starts.
type beginning struct {
	id      slotIdentity
	start   pglogrepl.LSN // 0: at the slot's own position
	horizon pglogrepl.LSN // see [pump.Config]
	copy    *pump.Copy    // sent before the stream; nil: none
}

// newOwnership returns an ownership that starts at begin.
func (o *Owner) newOwnership(begin beginning) *ownership {
	tracker := checkpoint.New(begin.start, o.observeConfirmed)
	o.tracker.Store(tracker)
	o.cfg.Pump.Progress.StartOwnership(tracker.Confirmed())
	o.positions.Starter.StartOwnership(tracker)
	deadLetters := o.cfg.DeadLetters
	t := &ownership{
		id: begin.id, tracker: tracker, positions: o.positions.Writer, checkOrder: o.checkOrder, draining: o.cfg.Draining,
		deadLetters: deadLetters, outcomes: pump.NewOutcomes(tracker, deadLetters, o.cfg.Tracer),
		drainTimeout: o.cfg.DrainTimeout, log: o.log, written: make(chan struct{}),
	}
	t.writer = o.cfg.NewWriter(t.writerConfig(o, begin.copy))
	pumping := o.cfg.Pump
	pumping.Writer, pumping.Outcomes, pumping.Copy, pumping.Horizon = t.writer, t.outcomes, begin.copy, begin.horizon
	pumping.Witness = o.positions.Record.Next().Witness()
	if deadLetters.Parked() != nil {
		pumping.Turn = make(chan struct{}, 1)
	}
	t.pump = pump.New(pumping)
	if deadLetters.Parked() != nil {
		t.releaser = release.New(release.Config{
			Sink: o.cfg.Broker, DeadLetters: o.cfg.DeadLetterTopic, Timeout: o.cfg.StartupTimeout, Rows: o.cfg.Rows,
			Set: deadLetters.Parked(), Store: o.cfg.Store, Keys: o.positions.Parked, Record: o.positions.Record, Positions: o.positions.Writer, Tracker: tracker,
			Fence: t.fence.checkOpen, Flush: t.writer.Flush, Copying: t.pump.Copying, Turn: pumping.Turn, Log: o.log,
		})
	}
	return t
}

func (t *ownership) writerConfig(o *Owner, planned *pump.Copy) sink.WriterConfig {
	cfg := o.cfg.Writer
	cfg.Fence, cfg.Owner, cfg.Substitute = t.fence.checkOpen, o.cfg.Store.Owner(), t.outcomes.Substitute
	cfg.ContestedSince = o.positions.Record.Stored().AdvancedAt
	if planned != nil {
		cfg.CopiedSince = planned.Since
	}
	if t.deadLetters.Parked() != nil {
		cfg.Divert = t.outcomes.Divert
	}
	if o.cfg.Tracer != nil {
		cfg.Delivered = t.outcomes.EndSpans
	}
	return cfg
}

// observeConfirmed keeps the snapshot and reports the latency of a confirmed transaction.
func (o *Owner) observeConfirmed(tx checkpoint.Transaction) {
	if tx.Snapshot.Text != "" {
		o.positions.Writer.KeepSnapshot(tx.Snapshot)
	}
	if o.cfg.Delivered == nil || tx.CommitTime.IsZero() {
		return
	}
	trace := ""
	if tx.TraceID != ([16]byte{}) {
		trace = hex.EncodeToString(tx.TraceID[:])
	}
	o.cfg.Delivered(max(0, time.Since(tx.CommitTime)), trace)
}
