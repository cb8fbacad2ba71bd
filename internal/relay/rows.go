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

// insert sends one row, unless it belongs to the acknowledged beginning of a transaction that
// was cut.
func (p *publication) insert(ctx context.Context, row *decoder.Insert) error {
	index := p.tx.rows
	p.tx.rows++
	if p.deliveredBefore(index) {
		return p.tracker.Ack(p.tracker.Next())
	}
	rec := &p.rec
	if err := p.router.Route(p.tx.Tx, index, row, rec); err != nil {
		if rec, err = p.deadRow(index, row, err); err != nil {
			return err
		}
	}
	return p.send(ctx, rec)
}

// deliveredBefore reports whether a row of the open transaction is of the acknowledged
// beginning of one that was cut: that is recognised by its commit LSN, and its rows come in
// the same order.
func (p *publication) deliveredBefore(index int) bool {
	return p.cut.commitLSN == p.tx.CommitLSN && index < p.cut.acked
}

// send sends rec as the next record of the tracker's open transaction.
func (p *publication) send(ctx context.Context, rec *sink.Record) error {
	rec.Seq = uint64(p.tracker.Next())
	if p.spans != nil {
		if id, ok := p.spans.begin(rec, p.tx.Tx); ok {
			p.tracker.Trace(id)
		}
	}
	return p.hand(ctx, rec)
}

// hand counts rec and gives it to the writer.
func (p *publication) hand(ctx context.Context, rec *sink.Record) error {
	p.stats.rows++
	p.stats.bytes += uint64(len(rec.Key) + len(rec.Value))
	return p.writer.Send(ctx, rec)
}

// deadRow returns the dead letter of a row that did not become a record because of err.
func (p *publication) deadRow(index int, row *decoder.Insert, err error) (*sink.Record, error) {
	return p.refused(p.tx.Tx, index, err, func(topic string, o encode.Origin, refused *encode.RowError) *sink.Record {
		return p.router.DeadRow(topic, o, row, refused)
	})
}

// refused returns the dead letter that letter makes of what did not become a record because of
// err, or the error that ends the session. A table whose columns are not those configured is
// not about one row, and a catalog that does not answer about none.
func (p *publication) refused(tx encode.Tx, index int, err error,
	letter func(topic string, o encode.Origin, refused *encode.RowError) *sink.Record,
) (*sink.Record, error) {
	if refused, ok := errors.AsType[*encode.RowError](err); ok {
		o := encode.Origin{Slot: p.deadLetters.slot, Tx: tx, Index: index}
		if p.deadLetters.take(refused.Error(), o) {
			return letter(p.deadLetters.topic, o, refused), nil
		}
	} else if !as[*encode.ColumnError](err) {
		return nil, err
	}
	return nil, &DeliveryError{CommitLSN: tx.CommitLSN, Row: index, Err: err}
}

// MessagePrefix is that of the messages a relay writes to itself: its name, a bar, and what
// pg_current_snapshot() returned.
const MessagePrefix = "outbox-cdc"

// logicalMessage takes what pg_logical_emit_message has written: a snapshot of ours, or a row.
func (p *publication) logicalMessage(ctx context.Context, m *decoder.LogicalMessage) error {
	switch {
	case p.isRow(m) && p.tx != nil:
		return p.messageRow(ctx, m)
	case p.isRow(m):
		return p.loneMessage(ctx, m)
	case m.Transactional && m.Prefix == MessagePrefix:
		if name, snapshot, ok := strings.Cut(string(m.Content), "|"); ok && name == p.label {
			p.tracker.Snapshot(snapshot)
		}
	}
	return nil
}

// isRow reports whether a message holds a row. Relays' own never do.
func (p *publication) isRow(m *decoder.LogicalMessage) bool {
	return m.Prefix != MessagePrefix && (slices.Contains(p.messages, m.Prefix) || slices.Contains(p.messages, replication.AnyPrefix))
}

// messageRow sends a message as a row of the open transaction.
func (p *publication) messageRow(ctx context.Context, m *decoder.LogicalMessage) error {
	index := p.tx.rows
	p.tx.rows++
	if p.deliveredBefore(index) {
		return p.tracker.Ack(p.tracker.Next())
	}
	rec, err := p.routeMessage(p.tx.Tx, index, m)
	if err != nil {
		return err
	}
	return p.send(ctx, rec)
}

// loneMessage sends a message that belongs to no transaction, as one of its own. The server
// sends it again unless the position behind it is confirmed, which is the LSN it comes with. A
// transaction may begin to commit there; so that the two are not taken for one, its own is one
// byte less, where nothing else can begin. It has no time but that of its reading.
func (p *publication) loneMessage(ctx context.Context, m *decoder.LogicalMessage) error {
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
	p.stats.received = max(p.stats.received, end)
	p.tracker.Begin(tx.CommitLSN, time.Time{})
	if skipped {
		p.tracker.Commit(end)
		p.skip.passed()
		return nil
	}
	rec.Seq = uint64(p.tracker.Next())
	p.tracker.Commit(end) // before it is sent: a session that ends here has not cut it
	if p.spans != nil {
		p.spans.begin(rec, tx)
	}
	return p.hand(ctx, rec)
}

// routeMessage makes the record of a message, or its dead letter.
func (p *publication) routeMessage(tx encode.Tx, index int, m *decoder.LogicalMessage) (*sink.Record, error) {
	err := p.router.RouteMessage(tx, index, m, &p.rec)
	if err == nil {
		return &p.rec, nil
	}
	return p.refused(tx, index, err, func(topic string, o encode.Origin, refused *encode.RowError) *sink.Record {
		return p.router.DeadMessage(topic, o, m, refused)
	})
}
