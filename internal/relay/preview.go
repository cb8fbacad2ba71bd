package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// CheckTable returns a *[encode.ColumnError] if rows of t cannot become records. It uses Source.Conn,
// Route and StartupTimeout of cfg.
func CheckTable(ctx context.Context, cfg Config, t catalog.Table) error {
	router, err := NewRouter(ctx, cfg)
	if err != nil {
		return err
	}
	return router.Check(Relation(t))
}

// NewRouter returns a Router for cfg.Route. If it needs the catalog, it asks cfg.Source.Conn, as long
// as ctx lasts.
func NewRouter(ctx context.Context, cfg Config) (*encode.Router, error) {
	router, err := encode.New(cfg.Route)
	if err == nil {
		router.SetDescribe((&Relay{cfg: cfg.withDefaults()}).newDescribe(ctx))
	}
	return router, err
}

// Sample makes records of up to n of the last rows of a table, as [Preview] does, and calls visit with
// each, or with the reason why a row cannot become one. The record is valid until visit returns, which
// reports whether Sample continues. The error is that of the table or of the server.
func Sample(ctx context.Context, cfg Config, table string, n int, visit func(rec *sink.Record, rejected error) (more bool)) error {
	router, err := NewRouter(ctx, cfg)
	if err != nil {
		return err
	}
	t, rows, err := catalog.LastRows(ctx, cfg.Source.Conn, table, n)
	if err != nil {
		return err
	}
	rel := Relation(*t)
	if err := router.Check(rel); err != nil {
		return err
	}
	now := time.Now()
	var rec sink.Record
	row := &decoder.Insert{Relation: rel}
	for i, values := range rows {
		SetRow(row, values)
		if err := router.Route(encode.Tx{CommitTime: now, Timestamp: now}, i, row, &rec); !visit(&rec, err) {
			return nil
		}
	}
	return nil
}

// Preview returns the records that up to n of the last rows of a table would become, and sends none. A
// row that cannot become one ends them with a *[encode.RowError], a table with a *[encode.ColumnError].
// The transactions of the rows are not known: the records have the present time. Preview uses
// Source.Conn, Route and StartupTimeout of cfg.
func Preview(ctx context.Context, cfg Config, table string, n int) ([]sink.Record, error) {
	var records []sink.Record
	var rejection error
	err := Sample(ctx, cfg, table, n, func(rec *sink.Record, rejected error) (more bool) {
		if rejected != nil {
			rejection = rejected
			return false
		}
		records = append(records, Clone(*rec))
		return true
	})
	return records, cmp.Or(err, rejection)
}

// Clone returns a copy of a record whose bytes belong to a Router.
func Clone(rec sink.Record) sink.Record {
	rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
	rec.Headers = slices.Clone(rec.Headers)
	for i, h := range rec.Headers {
		rec.Headers[i].Value = slices.Clone(h.Value)
	}
	return rec
}

// IsRefusal reports whether err says that a table or one of its rows cannot become a record, rather
// than that the catalog did not answer.
func IsRefusal(err error) bool {
	_, table := errors.AsType[*encode.ColumnError](err)
	_, row := errors.AsType[*encode.RowError](err)
	return table || row
}
