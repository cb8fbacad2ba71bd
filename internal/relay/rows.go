package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendInsert sends one row, unless an earlier session delivered it.
func (p *pump) sendInsert(ctx context.Context, row *decoder.Insert) error {
	index := p.tx.rows
	p.tx.rows++
	if p.deliveredBefore(index) {
		return p.tracker.Ack(p.tracker.Next())
	}
	rec := &p.record
	if err := p.router.Route(p.tx.Tx, index, row, rec); err != nil {
		if rec, err = p.deadLetterRow(index, row, err); err != nil {
			return err
		}
	}
	return p.sendRecord(ctx, rec)
}

// deliveredBefore reports whether the open transaction is the one that an earlier session read in
// part, and the row is one of its acknowledged first rows. The commit LSN identifies the
// transaction, and Postgres resends its rows in the same order.
func (p *pump) deliveredBefore(index int) bool {
	return p.interrupted.commitLSN == p.tx.CommitLSN && index < p.interrupted.acked
}

// sendRecord sends rec as the next record of the Tracker's open transaction.
func (p *pump) sendRecord(ctx context.Context, rec *sink.Record) error {
	rec.Seq = uint64(p.tracker.Next())
	if p.spans != nil {
		if id, ok := p.spans.startSpan(rec, p.tx.Tx); ok {
			p.tracker.Trace(id)
		}
	}
	return p.writeRecord(ctx, rec)
}

// writeRecord counts rec and passes it to the writer.
func (p *pump) writeRecord(ctx context.Context, rec *sink.Record) error {
	p.counts.rows++
	return p.writer.Send(ctx, rec)
}

// deadLetterRow returns the dead letter of a row that cannot become a record because of err.
func (p *pump) deadLetterRow(index int, row *decoder.Insert, err error) (*sink.Record, error) {
	return p.deadLetter(p.tx.Tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadRow(topic, o, row, rejected)
	})
}

// deadLetter returns what makeDeadLetter makes of a row or message that cannot become a record
// because of err, or the error that ends the session. Only a *[encode.RowError] is about a single
// row: a *[encode.ColumnError] is about its table, and a catalog that does not answer about neither.
func (p *pump) deadLetter(tx encode.Tx, index int, err error,
	makeDeadLetter func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record,
) (*sink.Record, error) {
	if rejected, ok := errors.AsType[*encode.RowError](err); ok {
		o := encode.Origin{Slot: p.deadLetters.slot, Tx: tx, Index: index}
		if p.deadLetters.accept(rejected.Error(), o) {
			return makeDeadLetter(p.deadLetters.topic, o, rejected), nil
		}
	} else if !as[*encode.ColumnError](err) {
		return nil, err
	}
	return nil, &deliveryError{commitLSN: tx.CommitLSN, row: index, err: err}
}

// MessagePrefix is the prefix of the logical messages that a relay writes for itself. Their content
// is the relay's name, a bar, and what pg_current_snapshot() returned.
const MessagePrefix = "outbox-cdc"

// takeLogicalMessage handles what pg_logical_emit_message has written: a snapshot of ours, or a row.
func (p *pump) takeLogicalMessage(ctx context.Context, m *decoder.LogicalMessage) error {
	switch {
	case p.isRow(m) && p.tx != nil:
		return p.sendMessageRow(ctx, m)
	case p.isRow(m):
		return p.sendNonTransactional(ctx, m)
	case m.Transactional && m.Prefix == MessagePrefix:
		if name, snapshot, ok := strings.Cut(string(m.Content), "|"); ok && name == p.label {
			p.tracker.Snapshot(snapshot)
		}
	}
	return nil
}

// isRow reports whether a message holds a row. A relay's own message never does.
func (p *pump) isRow(m *decoder.LogicalMessage) bool {
	return m.Prefix != MessagePrefix && (slices.Contains(p.messages, m.Prefix) || slices.Contains(p.messages, replication.AnyPrefix))
}

// sendMessageRow sends a message as a row of the open transaction.
func (p *pump) sendMessageRow(ctx context.Context, m *decoder.LogicalMessage) error {
	index := p.tx.rows
	p.tx.rows++
	if p.deliveredBefore(index) {
		return p.tracker.Ack(p.tracker.Next())
	}
	rec, err := p.routeMessage(p.tx.Tx, index, m)
	if err != nil {
		return err
	}
	return p.sendRecord(ctx, rec)
}

// sendNonTransactional sends a message that belongs to no transaction as a transaction of its own.
// The message's LSN is the position after it: Postgres resends it until that is confirmed. The
// commit record of another transaction may start there. So that the two are not mistaken for one, the
// message counts as committed one byte earlier, where no commit record can start, at the time it
// is read.
func (p *pump) sendNonTransactional(ctx context.Context, m *decoder.LogicalMessage) error {
	end, now := m.LSN, time.Now()
	tx := encode.Tx{CommitLSN: end - 1, CommitTime: now, Timestamp: now}
	skipped := p.skip.covers(tx.CommitLSN)
	var rec *sink.Record
	if !skipped {
		var err error
		if rec, err = p.routeMessage(tx, 0, m); err != nil {
			return err
		}
	}
	p.counts.received = max(p.counts.received, end)
	p.tracker.Begin(tx.CommitLSN, time.Time{})
	if skipped {
		p.tracker.Commit(end)
		p.skip.countTransaction()
		return nil
	}
	rec.Seq = uint64(p.tracker.Next())
	p.tracker.Commit(end) // before Send: a session that ends there leaves no interrupted transaction
	if p.spans != nil {
		p.spans.startSpan(rec, tx)
	}
	return p.writeRecord(ctx, rec)
}

// routeMessage returns the record of a message, or its dead letter.
func (p *pump) routeMessage(tx encode.Tx, index int, m *decoder.LogicalMessage) (*sink.Record, error) {
	err := p.router.RouteMessage(tx, index, m, &p.record)
	if err == nil {
		return &p.record, nil
	}
	return p.deadLetter(tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadMessage(topic, o, m, rejected)
	})
}
