package pump

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sendUpdate handles an updated row. It returns an error that stops the relay, drops the update, or
// sends it as a new event if the id of the row has changed. Only the row and the configuration decide
// which, so that rows have the same indexes when Postgres resends their transaction.
func (p *Pump) sendUpdate(ctx context.Context, u *decoder.Update) error {
	if p.updates.onUpdate == encode.UpdateStop {
		return p.unexpectedChange("UPDATE", u.Relation)
	}
	index := p.tx.rows
	p.forgetRecord()
	routed, err := p.router.RouteUpdate(p.tx.Tx, index, u, &p.record)
	if !routed && err == nil {
		p.updates.dropUpdate(ctx, u.Relation)
		return nil
	}
	p.tx.rows++
	return p.sendRow(ctx, &p.tx.Tx, p.tx.position(index), func() (*sink.Record, error) {
		if err != nil {
			return p.deadLetterRow(index, &decoder.Insert{Relation: u.Relation, Row: u.New}, err)
		}
		return &p.record, nil
	})
}

// unexpectedChange returns the error for an UPDATE that the configuration does not allow, or for a kind of
// change that the publication did not publish when the session started. It returns nil for a resent change of a confirmed transaction.
func (p *Pump) unexpectedChange(kind string, relations ...*decoder.Relation) error {
	if p.tx.CommitLSN < p.tracker.Confirmed() {
		return nil
	}
	e := &ChangeError{Kind: kind, CommitLSN: p.tx.CommitLSN}
	if len(relations) > 0 {
		e.Table = relations[0].Namespace + "." + relations[0].Name
	}
	return e
}
