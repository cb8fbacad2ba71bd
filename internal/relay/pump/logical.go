package pump

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// handleLogicalMessage handles a message written by pg_logical_emit_message: a snapshot of this process,
// or a row.
func (p *Pump) handleLogicalMessage(ctx context.Context, m *decoder.LogicalMessage) error {
	switch {
	case p.isRow(m) && p.tx != nil:
		return p.sendMessageRow(ctx, m)
	case p.isRow(m):
		return p.sendNonTransactional(ctx, m)
	case m.Transactional && m.Prefix == catalog.MessagePrefix:
		p.tracker.Note()
		p.trackSnapshot(m.Content)
	}
	return nil
}

// trackSnapshot passes the snapshot in a message with the relay's own prefix to the Tracker, if this
// process has written the message. It ignores all other messages, because any role can write them. It also
// ignores those of an earlier process: a new snapshot follows within a second or two.
func (p *Pump) trackSnapshot(content []byte) {
	if own, ok := bytes.CutPrefix(content, []byte(p.nonce+"|")); ok && checkpoint.ValidSnapshot(string(own)) {
		p.tracker.Snapshot(p.witnesses.Snapshot(string(own)))
	}
}

// isRow reports whether a message has a row. The program's own messages never have one.
func (p *Pump) isRow(m *decoder.LogicalMessage) bool {
	return m.Prefix != catalog.MessagePrefix && (slices.Contains(p.messages, m.Prefix) || slices.Contains(p.messages, replication.AnyPrefix))
}

// sendMessageRow sends a message as a row of the open transaction.
func (p *Pump) sendMessageRow(ctx context.Context, m *decoder.LogicalMessage) error {
	index := p.tx.rows
	p.tx.rows++
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) { return p.routeMessage(p.tx.Tx, index, m) })
}

// sendNonTransactional sends a non-transactional message as a transaction of its own. The LSN of the
// message is the position after it, and Postgres resends the message until that position is confirmed.
// The commit record of another transaction may start there. To tell the two apart, the commit LSN of the
// message is one byte lower, where no commit record can start. Its commit time is the time of reading.
func (p *Pump) sendNonTransactional(ctx context.Context, m *decoder.LogicalMessage) error {
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
	p.counts.Received = max(p.counts.Received, end)
	return p.tracker.Commit(end)
}

// routeMessage returns the record of a message, or its dead letter.
func (p *Pump) routeMessage(tx encode.Tx, index int, m *decoder.LogicalMessage) (*sink.Record, error) {
	p.forgetRecord()
	err := p.router.RouteMessage(tx, index, m, &p.record)
	if err == nil {
		return &p.record, nil
	}
	return p.deadLetter(tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadMessage(topic, o, m, rejected)
	})
}
