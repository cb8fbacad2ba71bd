package relay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendInsert sends one row, unless an earlier session has sent it.
func (p *pump) sendInsert(ctx context.Context, row *decoder.Insert) error {
	index := p.tx.rows
	p.tx.rows++
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) {
		p.forgetRecord()
		if err := p.router.Route(p.tx.forRecord(), index, row, &p.record); err != nil {
			return p.deadLetterRow(index, row, err)
		}
		return &p.record, nil
	})
}

// sendRow sends the result of route, for the row of tx at the given position, as the next record of the Tracker's open
// transaction. If the writer does not accept the record, sendRow cancels its number. It does nothing if the row
// already has a record.
func (p *pump) sendRow(ctx context.Context, tx *encode.Tx, at sink.Position, route func() (*sink.Record, error)) error {
	seq, err := p.tracker.Next(p.raw)
	if seq == 0 || err != nil {
		return err
	}
	p.record.Position = at
	rec, err := route()
	if err != nil {
		p.tracker.Cancel()
		return err
	}
	rec.Copied = at.IsZero()
	rec.Seq, rec.Contested = uint64(seq), rec.Copied || tx.CommitLSN < p.horizon
	if p.spans != nil {
		if id, ok := p.spans.startSpan(rec, *tx); ok {
			p.tracker.Trace(id)
		}
	}
	if err := p.writer.Send(ctx, rec); err != nil {
		p.spans.cancelSpan(rec.Seq)
		p.tracker.Cancel()
		return &sendError{err}
	}
	p.counts.rows++
	return nil
}

// A sendError is an error of Send: ctx has ended, or the writer is about to end. In the second case, the
// error of its Run says more.
type sendError struct{ error }

func (e *sendError) Unwrap() error { return e.error }

// forgetRecord removes what deadLetter would take for topic and key of a row that cannot become a record.
func (p *pump) forgetRecord() { p.record.Topic, p.record.Key = "", nil }

// deadLetterRow returns the dead letter for a row that cannot become a record because of err.
func (p *pump) deadLetterRow(index int, row *decoder.Insert, err error) (*sink.Record, error) {
	return p.deadLetter(p.tx.Tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadRow(topic, o, row, rejected)
	})
}

// deadLetter returns the dead letter for a row or message that cannot become a record because of err, or
// the error that ends the session. Only an [*encode.RowError] is about a single row. An
// [*encode.ColumnError] is about its table, and other errors are about the catalog.
func (p *pump) deadLetter(tx encode.Tx, index int, err error,
	makeDeadLetter func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record,
) (*sink.Record, error) {
	if rejected, ok := errors.AsType[*encode.RowError](err); ok {
		o := encode.Origin{Slot: p.deadLetters.slot, Tx: tx, Index: index}
		park, ok := p.deadLetters.park(&p.record, o, rejected.Error())
		if ok && p.deadLetters.accept(rejected.Error(), o) {
			return park(makeDeadLetter(p.deadLetters.topic, o, rejected)), nil
		}
		err = p.deadLetters.explainFull(err)
	} else if !as[*encode.ColumnError](err) {
		return nil, err
	}
	return nil, &deliveryError{commitLSN: tx.CommitLSN, row: index, err: err}
}

// handleLogicalMessage handles a message written by pg_logical_emit_message: a snapshot of this process,
// or a row.
func (p *pump) handleLogicalMessage(ctx context.Context, m *decoder.LogicalMessage) error {
	switch {
	case p.isRow(m) && p.tx != nil:
		return p.sendMessageRow(ctx, m)
	case p.isRow(m):
		return p.sendNonTransactional(ctx, m)
	case m.Transactional && m.Prefix == catalog.MessagePrefix:
		p.trackSnapshot(m.Content)
	}
	return nil
}

// trackSnapshot passes the snapshot in a message with the relay's own prefix to the Tracker, if this
// process has written the message. It ignores all other messages, because any role can write them. It also
// ignores those of an earlier process: a new snapshot follows within a second or two.
func (p *pump) trackSnapshot(content []byte) {
	if own, ok := bytes.CutPrefix(content, []byte(p.nonce+"|")); ok && checkpoint.ValidSnapshot(string(own)) {
		p.tracker.Snapshot(string(own))
	}
}

// isRow reports whether a message has a row. The program's own messages never have one.
func (p *pump) isRow(m *decoder.LogicalMessage) bool {
	return !catalog.Reserved(m.Prefix) && (slices.Contains(p.messages, m.Prefix) || slices.Contains(p.messages, replication.AnyPrefix))
}

// sendMessageRow sends a message as a row of the open transaction.
func (p *pump) sendMessageRow(ctx context.Context, m *decoder.LogicalMessage) error {
	index := p.tx.rows
	p.tx.rows++
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) { return p.routeMessage(p.tx.Tx, index, m) })
}

// sendNonTransactional sends a non-transactional message as a transaction of its own. The LSN of the
// message is the position after it, and Postgres resends the message until that position is confirmed.
// The commit record of another transaction may start there. To tell the two apart, the commit LSN of the
// message is one byte lower, where no commit record can start. Its commit time is the time of reading.
func (p *pump) sendNonTransactional(ctx context.Context, m *decoder.LogicalMessage) error {
	end, now := m.LSN, time.Now()
	tx := encode.Tx{CommitLSN: end - 1, CommitTime: now, Timestamp: now}
	if err := p.tracker.Begin(tx.CommitLSN, time.Time{}); err != nil {
		return err
	}
	if p.skip.covers(tx.CommitLSN) {
		p.skip.countTransaction()
	} else if err := p.sendRow(ctx, &tx, sink.Position{CommitLSN: uint64(tx.CommitLSN)}, func() (*sink.Record, error) { return p.routeMessage(tx, 0, m) }); err != nil {
		return err
	}
	p.counts.received = max(p.counts.received, end)
	return p.tracker.Commit(end)
}

// routeMessage returns the record of a message, or its dead letter.
func (p *pump) routeMessage(tx encode.Tx, index int, m *decoder.LogicalMessage) (*sink.Record, error) {
	p.forgetRecord()
	err := p.router.RouteMessage(tx, index, m, &p.record)
	if err == nil {
		return &p.record, nil
	}
	return p.deadLetter(tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadMessage(topic, o, m, rejected)
	})
}
