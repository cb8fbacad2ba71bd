package pump

import (
	"context"
	"errors"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendInsert sends one row, unless an earlier session has sent it.
func (p *Pump) sendInsert(ctx context.Context, row *decoder.Insert) error {
	index := p.tx.rows
	p.tx.rows++
	if index == 0 && !p.tx.copied {
		p.addWitness(row)
	}
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) {
		p.forgetRecord()
		if err := p.router.Route(p.tx.forRecord(), index, row, &p.record); err != nil {
			return p.deadLetterRow(index, row, err)
		}
		return &p.record, nil
	})
}

// addWitness says that row is the first one of its transaction. If it has no hash, those of its table have none: to find out may take a
// connection.
func (p *Pump) addWitness(row *decoder.Insert) {
	if row.Relation == p.unhashed {
		return
	}
	hash, err := p.router.Hash(row)
	if err != nil {
		p.unhashed = row.Relation
		return
	}
	p.witnesses.Add(p.tx.xid, hash)
}

// sendRow sends the result of route, for the row of tx at the given position, as the next record of the Tracker's open
// transaction. If the writer does not accept the record, sendRow cancels its number. It does nothing if the row
// already has a record.
func (p *Pump) sendRow(ctx context.Context, tx *encode.Tx, at sink.Position, route func() (*sink.Record, error)) error {
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
		return &SendError{err}
	}
	p.counts.Rows++
	return nil
}

// forgetRecord removes what deadLetter would take for topic and key of a row that cannot become a record.
func (p *Pump) forgetRecord() { p.record.Topic, p.record.Key = "", nil }

// deadLetterRow returns the dead letter for a row that cannot become a record because of err.
func (p *Pump) deadLetterRow(index int, row *decoder.Insert, err error) (*sink.Record, error) {
	return p.deadLetter(p.tx.Tx, index, err, func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record {
		return p.router.DeadRow(topic, o, row, rejected)
	})
}

// deadLetter returns the dead letter for a row or message that cannot become a record because of err, or
// the error that ends the session. Only an [*encode.RowError] is about a single row. An
// [*encode.ColumnError] is about its table, and other errors are about the catalog.
func (p *Pump) deadLetter(tx encode.Tx, index int, err error,
	makeDeadLetter func(topic string, o encode.Origin, rejected *encode.RowError) *sink.Record,
) (*sink.Record, error) {
	if rejected, ok := errors.AsType[*encode.RowError](err); ok {
		o := encode.Origin{Slot: p.deadLetters.slot, Tx: tx, Index: index}
		park, ok := p.deadLetters.park(&p.record, o, rejected.Error())
		if ok && p.deadLetters.accept(rejected.Error(), o) {
			return park(makeDeadLetter(p.deadLetters.topic, o, rejected)), nil
		}
		err = p.deadLetters.explain(err)
	} else if _, ok := errors.AsType[*encode.ColumnError](err); !ok {
		return nil, err
	}
	return nil, &DeliveryError{CommitLSN: tx.CommitLSN, Row: index, Copied: p.tx != nil && p.tx.copied, Err: err}
}
