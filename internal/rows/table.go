package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Config says where rows are, and how they become records.
type Config struct {
	Source  replication.Config // its Conn is used
	Route   encode.Config
	Timeout time.Duration // for a read of the catalog
}

// NewRouter returns a Router for cfg.Route. If the Router needs the catalog, it reads it until ctx ends.
func (cfg Config) NewRouter(ctx context.Context) (*encode.Router, error) {
	router, err := encode.New(cfg.Route)
	if err == nil {
		router.SetDescribe(cfg.Describe(ctx))
	}
	return router, err
}

// Describe returns a function that reads the definition of a relation from the source's catalog. Each
// call opens a connection.
func (cfg Config) Describe(ctx context.Context) encode.Describe {
	return func(rel *decoder.Relation) ([]format.Column, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
		asked := make([]catalog.Column, len(rel.Columns))
		for i, c := range rel.Columns {
			asked[i] = catalog.Column{Name: c.Name, TypeOID: c.TypeOID, TypeModifier: c.TypeModifier}
		}
		described, err := catalog.Describe(ctx, cfg.Source.Conn, rel.OID, asked)
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

// ErrColumnList is the reason for an [*encode.ColumnError] that outbox.columns cannot change.
var ErrColumnList = errors.New("the publication has a column list")

// Explain adds to an [*encode.ColumnError] about t why the stream lacks a column that t has.
func Explain(err error, t catalog.Table) error {
	refusal, ok := errors.AsType[*encode.ColumnError](err)
	if !ok {
		return err
	}
	unlisted := false
	for _, c := range t.Unsent {
		unlisted = refusal.Explain(c.Name, c.Reason) && !c.Generated || unlisted
	}
	if unlisted && !errors.Is(err, ErrColumnList) {
		return fmt.Errorf("%w; %w: run %s, %s", err, ErrColumnList, t.Republish, t.InstructUnlisted())
	}
	return err
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
	return r, Explain(router.Check(r.row.Relation), t)
}

// Route returns the record of a row, which is valid until the next call, or the reason why the row cannot become
// one. values have the text of each column, nil for NULL; tx and index say what a stream would say of the row.
func (r *TableRouter) Route(tx encode.Tx, index int, values [][]byte) (*sink.Record, error) {
	SetRow(&r.row, values[:len(r.row.Relation.Columns)])
	return &r.rec, r.router.Route(tx, index, &r.row, &r.rec)
}

// Hash returns [encode.Router.Hash] of a row, with the values of [TableRouter.Route].
func (r *TableRouter) Hash(values [][]byte) (uint32, error) {
	SetRow(&r.row, values[:len(r.row.Relation.Columns)])
	return r.router.Hash(&r.row)
}

// SetRow sets the values of row as the stream would, from values in text format, nil for NULL. The row
// aliases values.
func SetRow(row *decoder.Insert, values [][]byte) {
	row.Row = row.Row[:0]
	for _, v := range values {
		kind := decoder.Text
		if v == nil {
			kind = decoder.Null
		}
		row.Row = append(row.Row, decoder.Value{Kind: kind, Data: v})
	}
}

// Clone returns a deep copy of a record, whose bytes otherwise belong to a Router.
func Clone(rec sink.Record) sink.Record {
	rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
	rec.Headers = slices.Clone(rec.Headers)
	for i, h := range rec.Headers {
		rec.Headers[i].Key, rec.Headers[i].Value = strings.Clone(h.Key), slices.Clone(h.Value)
	}
	return rec
}

// IsRefusal reports whether err says that a table or one of its rows cannot become a record. Other errors
// are about the catalog.
func IsRefusal(err error) bool {
	_, table := errors.AsType[*encode.ColumnError](err)
	_, row := errors.AsType[*encode.RowError](err)
	return table || row
}
