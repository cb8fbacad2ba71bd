package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
)

// A tableChecker checks that rows of the outbox tables can become records. One goroutine at a time
// uses it.
type tableChecker struct {
	router *encode.Router
	known  map[uint32]*decoder.Relation // by OID; the router checks each pointer once
	log    *slog.Logger

	// While held is set, it refuses the columns that the tables have now. Rows that were committed before until, when
	// the catalog had them already, may have others: the stream judges these rows by the columns they come with.
	held  error
	until pglogrepl.LSN

	tables map[string]catalog.Table // by schema.table, as of the last [tableChecker.note]
	asOf   pglogrepl.LSN            // the end of the WAL at that time
}

// check is checkTables, but it holds an [*encode.ColumnError] back until everything that was committed before is
// confirmed.
func (c *tableChecker) check(ctx context.Context, state *catalog.State, describe encode.Describe, confirmed pglogrepl.LSN) error {
	err := c.checkTables(state, describe)
	if _, lacks := errors.AsType[*encode.ColumnError](err); !lacks {
		if err == nil {
			c.held = nil
		}
		return err
	}
	if c.held == nil {
		c.until = state.WALEnd
	}
	if confirmed >= c.until {
		return err
	}
	if c.held == nil {
		c.log.WarnContext(ctx, "the columns of a table do not fit the configuration: the relay stops after the rows that were committed before",
			slog.String("until", c.until.String()), slog.Any("err", err))
	}
	c.held = err
	return nil
}

// findUnfit returns the [*encode.ColumnError] with which a relay ends as soon as it has delivered older rows.
func (c *tableChecker) findUnfit(state *catalog.State, describe encode.Describe) error {
	err := c.checkTables(state, describe)
	if _, lacks := errors.AsType[*encode.ColumnError](err); !lacks {
		return nil // it is known to fail for another reason, or not at all
	}
	c.held = err
	return err
}

// isDue reports whether check would return an error that it has held back.
func (c *tableChecker) isDue(confirmed pglogrepl.LSN) bool {
	return c.held != nil && confirmed >= c.until
}

// orUnlisted returns err, or the error that check has held back if err says that rows were left out, and a column list is why rows cannot
// become records: it has to go before recover can send those rows.
func (c *tableChecker) orUnlisted(err error) error {
	if _, ok := errors.AsType[*catalog.LeftOutError](err); ok && errors.Is(c.held, rows.ErrColumnList) {
		return c.held
	}
	return err
}

// explain adds to an [*encode.ColumnError] of the stream why it lacks a column that the table has now. What the table had at the
// last check says nothing of a row that was committed later: somebody may have dropped the column in between.
func (c *tableChecker) explain(err error) error {
	refusal, ok := errors.AsType[*encode.ColumnError](err)
	if !ok {
		return err
	}
	t, known := c.tables[refusal.Table]
	older := writtenBefore(err, c.asOf)
	if err = rows.Explain(err, t); known && older && c.hasColumns(t) && !slices.ContainsFunc(refusal.Have, func(name string) bool { return !hasColumn(t, name) }) {
		return fmt.Errorf("%w; %w: to send the rows from the table, run %s", err, fault.ErrOlderRow, t.InstructStuck())
	}
	return err
}

// writtenBefore reports whether err is about a row of a transaction that was committed before lsn.
func writtenBefore(err error, lsn pglogrepl.LSN) bool {
	if rel, ok := errors.AsType[*pump.RelationError](err); ok {
		return rel.CommitLSN < lsn
	}
	row, ok := errors.AsType[*pump.DeliveryError](err)
	return ok && row.CommitLSN < lsn
}

func hasColumn(t catalog.Table, name string) bool {
	return slices.ContainsFunc(t.Columns, func(c catalog.Column) bool { return c.Name == name })
}

// checkTables returns an [*encode.ColumnError] for the first table whose rows cannot become records, or the
// error of describe.
func (c *tableChecker) checkTables(state *catalog.State, describe encode.Describe) error {
	c.router.SetDescribe(describe)
	c.note(state)
	for _, t := range state.Carriers() {
		if err := rows.Explain(c.router.Check(c.relation(t)), t); err != nil {
			return err
		}
	}
	return nil
}

// note keeps the tables of state for explain.
func (c *tableChecker) note(state *catalog.State) {
	c.tables, c.asOf = make(map[string]catalog.Table), state.WALEnd
	for _, t := range state.Carriers() {
		c.tables[t.Schema+"."+t.Name] = t
	}
}

// hasColumns reports whether rows of t could become records.
func (c *tableChecker) hasColumns(t catalog.Table) bool { return c.router.Check(c.relation(t)) == nil }

// relation returns the relation for t: the same pointer as long as t does not change.
func (c *tableChecker) relation(t catalog.Table) *decoder.Relation {
	rel := rows.Relation(t)
	known := c.known[rel.OID]
	if known != nil && known.Namespace == rel.Namespace && known.Name == rel.Name && slices.Equal(known.Columns, rel.Columns) {
		return known
	}
	c.known[rel.OID] = rel
	return rel
}
