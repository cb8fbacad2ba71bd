package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// newDescribe returns a function that reads the definition of a relation from the source's catalog. Each
// call opens a connection.
func (r *Relay) newDescribe(ctx context.Context) encode.Describe {
	return func(rel *decoder.Relation) ([]format.Column, error) {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
		defer cancel()
		asked := make([]catalog.Column, len(rel.Columns))
		for i, c := range rel.Columns {
			asked[i] = catalog.Column{Name: c.Name, TypeOID: c.TypeOID, TypeModifier: c.TypeModifier}
		}
		described, err := catalog.Describe(ctx, r.cfg.Source.Conn, rel.OID, asked)
		var columns []format.Column
		for _, d := range described {
			columns = append(columns, format.Column{Name: d.Name, Type: dataType(d.Type), Nullable: d.Nullable, Default: d.Default})
		}
		return columns, err
	}
}

func dataType(t catalog.TypeDescription) format.Type {
	data := format.Type{OID: t.OID, Name: t.Name, Kind: t.Kind, Modifier: t.Modifier, Labels: t.Labels, MoneyPlaces: t.MoneyPlaces}
	if t.Elem != nil {
		data.Elem = new(dataType(*t.Elem))
	}
	return data
}

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

	unsent map[string][]catalog.UnsentColumn // by schema.table, as of the last check
}

// check is checkTables, but it holds an [*encode.ColumnError] back until everything that was committed before is
// confirmed.
func (c *tableChecker) check(ctx context.Context, state *catalog.State, describe encode.Describe, confirmed pglogrepl.LSN) error {
	err := c.checkTables(state, describe)
	if !as[*encode.ColumnError](err) {
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

// isDue reports whether check would return an error that it has held back.
func (c *tableChecker) isDue(confirmed pglogrepl.LSN) bool {
	return c.held != nil && confirmed >= c.until
}

// explain adds to an [*encode.ColumnError] of the stream why it lacks a column that the table has now.
func (c *tableChecker) explain(err error) error {
	if refusal, ok := errors.AsType[*encode.ColumnError](err); ok {
		for _, column := range c.unsent[refusal.Table] {
			refusal.Explain(column.Name, column.Reason)
		}
	}
	return err
}

// checkTables returns an [*encode.ColumnError] for the first table whose rows cannot become records, or the
// error of describe.
func (c *tableChecker) checkTables(state *catalog.State, describe encode.Describe) error {
	c.router.SetDescribe(describe)
	c.unsent = make(map[string][]catalog.UnsentColumn)
	carriers := state.Carriers()
	for _, t := range carriers {
		c.unsent[t.Schema+"."+t.Name] = t.Unsent
	}
	for _, t := range carriers {
		if err := explain(c.router.Check(c.relation(t)), t); err != nil {
			return err
		}
	}
	return nil
}

// explain adds to an [*encode.ColumnError] about t why the stream lacks a column that t has.
func explain(err error, t catalog.Table) error {
	if refusal, ok := errors.AsType[*encode.ColumnError](err); ok {
		for _, c := range t.Unsent {
			refusal.Explain(c.Name, c.Reason)
		}
	}
	return err
}

// hasColumns reports whether rows of t could become records.
func (c *tableChecker) hasColumns(t catalog.Table) bool { return c.router.Check(c.relation(t)) == nil }

// newLookUp returns a function that reads the catalog of the server of a stream into r.neighbours. The pump calls it.
func (r *Relay) newLookUp(source replication.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
		defer cancel()
		state, err := catalog.Inspect(ctx, source.Conn, r.cfg.Source.Publication, r.cfg.Source.Slot, r.named)
		if err != nil {
			return err
		}
		r.neighbours.update(ctx, state, func(t catalog.Table) bool { return r.router.Check(Relation(t)) == nil })
		return nil
	}
}

// newReadPast returns a function that reads the past of a table from the server of a stream. The pump calls it.
func (r *Relay) newReadPast(source replication.Config) func(context.Context, uint32) (catalog.Past, error) {
	return func(ctx context.Context, table uint32) (catalog.Past, error) {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
		defer cancel()
		return catalog.ReadPast(ctx, source.Conn, source.Slot, table)
	}
}

// relation returns the relation for t: the same pointer as long as t does not change.
func (c *tableChecker) relation(t catalog.Table) *decoder.Relation {
	rel := Relation(t)
	known := c.known[rel.OID]
	if known != nil && known.Namespace == rel.Namespace && known.Name == rel.Name && slices.Equal(known.Columns, rel.Columns) {
		return known
	}
	c.known[rel.OID] = rel
	return rel
}

// Relation returns the relation that the stream would define for a table of the catalog.
func Relation(t catalog.Table) *decoder.Relation {
	rel := &decoder.Relation{OID: t.OID, Namespace: t.Schema, Name: t.Name}
	for _, c := range t.Columns {
		rel.Columns = append(rel.Columns, decoder.Column{Name: c.Name, TypeOID: c.TypeOID, TypeModifier: c.TypeModifier})
	}
	return rel
}

// A TableRouter makes the records of rows that are read from a table. One goroutine uses it.
type TableRouter struct {
	router *encode.Router
	row    decoder.Insert
	rec    sink.Record
}

// NewTableRouter returns a TableRouter for the rows of t. The error is an [*encode.ColumnError] if no row of t can
// become a record.
func NewTableRouter(router *encode.Router, t catalog.Table) (*TableRouter, error) {
	r := &TableRouter{router: router, row: decoder.Insert{Relation: Relation(t)}}
	return r, explain(router.Check(r.row.Relation), t)
}

// Route returns the record of a row, which is valid until the next call, or the reason why the row cannot become
// one. values have the text of each column, nil for NULL; tx and index say what a stream would say of the row.
func (r *TableRouter) Route(tx encode.Tx, index int, values [][]byte) (*sink.Record, error) {
	setRow(&r.row, values[:len(r.row.Relation.Columns)])
	return &r.rec, r.router.Route(tx, index, &r.row, &r.rec)
}

// setRow sets the values of row as the stream would, from values in text format, nil for NULL. The row
// aliases values.
func setRow(row *decoder.Insert, values [][]byte) {
	row.Row = row.Row[:0]
	for _, v := range values {
		kind := decoder.Text
		if v == nil {
			kind = decoder.Null
		}
		row.Row = append(row.Row, decoder.Value{Kind: kind, Data: v})
	}
}
