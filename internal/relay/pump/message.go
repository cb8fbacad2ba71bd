package pump

import (
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Handle handles one message of the stream and reports whether it ended a transaction.
func (p *Pump) Handle(ctx context.Context, m replication.Message) (ended bool, err error) {
	switch m := m.(type) {
	case *replication.Keepalive:
		if err := p.tracker.Keepalive(m.WALEnd); err != nil {
			return false, err
		}
		if p.tx == nil {
			p.skip.notePosition(m.WALEnd)
		}
		p.counts.Received = max(p.counts.Received, m.WALEnd)
	case *replication.RowError:
		return false, m
	case *replication.WALData:
		return p.pumpMessage(ctx, m)
	}
	return false, nil
}

// pumpMessage handles one pgoutput message and reports whether it ended a transaction.
func (p *Pump) pumpMessage(ctx context.Context, m *replication.WALData) (ended bool, err error) {
	p.raw = m.Data
	out, err := p.decoder.Decode(m.Start, m.Data)
	if err != nil {
		return false, err
	}
	if rel, ok := out.(*decoder.Relation); ok {
		p.forget(rel)
	}
	if rel := tableOf(out); rel != nil {
		if relayed, err := p.relays(ctx, rel); !relayed || err != nil {
			return false, err
		}
	}
	if p.tx != nil && p.tx.skipped {
		return p.skipMessage(out)
	}
	switch out := out.(type) {
	case *decoder.Begin:
		return false, p.beginTransaction(out)
	case *decoder.Insert:
		return false, p.sendInsert(ctx, out)
	case *decoder.Commit:
		return true, p.commitTransaction(out)
	case *decoder.Relation:
		return false, p.checkRelation(out)
	case *decoder.Update:
		return false, p.sendUpdate(ctx, out)
	case *decoder.Delete:
		if !p.published.Delete {
			return false, p.unexpectedChange("DELETE", out.Relation)
		}
	case *decoder.Truncate:
		return false, p.checkTruncate(ctx, out)
	case *decoder.LogicalMessage:
		return false, p.handleLogicalMessage(ctx, out)
	case *decoder.Type, *decoder.Origin:
	}
	return false, nil
}

// checkTruncate returns an error for a TRUNCATE of an outbox table that was not published when the session started.
func (p *Pump) checkTruncate(ctx context.Context, out *decoder.Truncate) error {
	for _, rel := range out.Relations {
		relayed, err := p.relays(ctx, rel)
		if err == nil && relayed && !p.published.Truncate {
			err = p.unexpectedChange("TRUNCATE", rel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tableOf returns the table that a message is about, or nil.
func tableOf(out decoder.Output) *decoder.Relation {
	switch out := out.(type) {
	case *decoder.Insert:
		return out.Relation
	case *decoder.Relation:
		return out
	case *decoder.Update:
		return out.Relation
	case *decoder.Delete:
		return out.Relation
	case *decoder.Begin, *decoder.Commit, *decoder.Truncate, *decoder.LogicalMessage, *decoder.Type, *decoder.Origin:
	}
	return nil
}

// skipMessage handles a message of a skipped transaction and reports whether it ended the transaction.
func (p *Pump) skipMessage(out decoder.Output) (ended bool, err error) {
	switch out := out.(type) {
	case *decoder.Insert:
		if p.tx.rows == 0 {
			p.addWitness(out)
		}
		p.tx.rows++
		p.tracker.Note()
	case *decoder.LogicalMessage:
		p.tracker.Note()
		if p.isRow(out) {
			p.tx.rows++
		}
	case *decoder.Commit:
		if p.tx.rows > 0 {
			p.skip.countTransaction()
		}
		return true, p.commitTransaction(out)
	case *decoder.Begin, *decoder.Relation, *decoder.Type, *decoder.Origin, *decoder.Update, *decoder.Delete, *decoder.Truncate:
	}
	return false, nil
}

// maxAhead is how far a timestamp may be in the future. A broker rejects one that is an hour ahead
// (message.timestamp.after.max.ms). A commit time that is less far ahead is not changed, so that a row has the same timestamp when
// it is read again.
const maxAhead = time.Minute

func (p *Pump) beginTransaction(b *decoder.Begin) error {
	p.open = openTx{
		Tx:      encode.Tx{CommitLSN: b.CommitLSN, CommitTime: b.CommitTime, Timestamp: b.CommitTime},
		xid:     b.XID,
		skipped: p.skip.covers(b.CommitLSN),
	}
	if now := time.Now(); b.CommitTime.After(now.Add(maxAhead)) {
		p.open.Timestamp = now
	}
	p.tx = &p.open
	return p.tracker.Begin(b.CommitLSN, b.CommitTime)
}

func (p *Pump) commitTransaction(c *decoder.Commit) error {
	p.counts.Transactions++
	p.counts.Received = max(p.counts.Received, c.EndLSN)
	p.tx = nil
	return p.tracker.Commit(c.EndLSN)
}
