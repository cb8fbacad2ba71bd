package pump

import (
	"context"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
)

// A judgement says which rows of a table become records. It holds until the stream repeats the definition of the table, which Postgres
// does after each change of it.
type judgement struct {
	relayed bool
	until   pglogrepl.LSN // rows of transactions before it are relayed too
}

// forget drops the judgement of a table that the stream defines, perhaps as it was: it may have become a part of an outbox.
func (p *Pump) forget(rel *decoder.Relation) { delete(p.judgements, rel.OID) }

// relays reports whether a row of rel, in the open transaction, becomes a record. It reads the catalog if it does not know the
// table.
func (p *Pump) relays(ctx context.Context, rel *decoder.Relation) (bool, error) {
	j, ok := p.judgements[rel.OID]
	if !ok {
		relayed, until, err := p.judge(ctx, rel)
		if err != nil {
			return false, err
		}
		j = judgement{relayed, until}
		p.judgements[rel.OID] = j
	}
	return j.relayed || p.tx != nil && p.tx.CommitLSN < j.until, nil
}

// checkRelation returns a [*RelationError] if rows of rel cannot become records.
func (p *Pump) checkRelation(rel *decoder.Relation) error {
	err := p.router.Check(rel)
	if err != nil && p.tx != nil {
		return &RelationError{CommitLSN: p.tx.CommitLSN, Err: err}
	}
	return err
}

// judge reports whether rows of rel become records, or those of transactions before until do.
func (p *Pump) judge(ctx context.Context, rel *decoder.Relation) (relayed bool, until pglogrepl.LSN, err error) {
	relayed, known := p.neighbours.known(rel)
	// Unsuitable types do not make it a neighbour: its rows stop the relay, as those of the table would that it was a part of.
	hasColumns := p.router.HasColumns(rel)
	if !relayed && (!known || hasColumns) { // a neighbour may be a part of an outbox since the last look
		state, err := p.catalog.Inspect(ctx)
		if err != nil {
			return false, 0, err
		}
		p.neighbours.Update(ctx, state, func(t catalog.Table) bool { return p.router.Check(rows.Relation(t)) == nil })
		relayed, known = p.neighbours.known(rel)
	}
	if relayed {
		return true, 0, nil
	}
	if !hasColumns {
		if !known {
			p.neighbours.decide(ctx, rel, false, "it is not published any more, and has not the columns of an outbox")
		}
		return false, 0, nil
	}
	past, err := p.catalog.Past(ctx, rel.OID)
	if err != nil {
		return false, 0, err
	}
	if !known {
		p.neighbours.decide(ctx, rel, !past.Alone, "it is not published any more, and was no part of an outbox when these rows were written")
		return !past.Alone, 0, nil
	}
	return false, p.neighbours.relayUntil(ctx, rel, past), nil
}
