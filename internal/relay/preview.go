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

// CheckTable returns a *[encode.ColumnError] if rows of t cannot become records. Of cfg, Source.Conn,
// Route and StartupTimeout count.
func CheckTable(ctx context.Context, cfg Config, t catalog.Table) error {
	router, err := NewRouter(ctx, cfg)
	if err != nil {
		return err
	}
	return router.Check(Relation(t))
}

// NewRouter returns a Router for cfg.Route that asks the catalog of cfg.Source.Conn, as long as ctx
// lasts, where it needs to.
func NewRouter(ctx context.Context, cfg Config) (*encode.Router, error) {
	router, err := encode.New(cfg.Route)
	if err == nil {
		router.SetDescribe((&Relay{cfg: cfg.withDefaults()}).newDescribe(ctx))
	}
	return router, err
}

// Sample makes records of up to n of the last rows of a table, as [Preview] does, and hands each to
// visit, or why there is none. The record is valid until visit returns, which reports whether
// to go on. The error is that of the table or of the server.
func Sample(ctx context.Context, cfg Config, table string, n int, visit func(rec *sink.Record, refused error) (more bool)) error {
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

// Preview returns the records that up to n of the last rows of a table would become, without
// sending any: made by the same router from the same texts. A row that cannot become one ends
// them, with a *[encode.RowError]; a table that cannot is a *[encode.ColumnError]. Of the
// transaction, which is gone, they have nothing but the present time. Of cfg, Source.Conn, Route and
// StartupTimeout count.
func Preview(ctx context.Context, cfg Config, table string, n int) ([]sink.Record, error) {
	var records []sink.Record
	var refusal error
	err := Sample(ctx, cfg, table, n, func(rec *sink.Record, refused error) (more bool) {
		if refused != nil {
			refusal = refused
			return false
		}
		records = append(records, Clone(*rec))
		return true
	})
	return records, cmp.Or(err, refusal)
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

// IsRefusal reports whether err says that a table or one of its rows cannot become a record, and not that
// this could not be found out.
func IsRefusal(err error) bool {
	_, table := errors.AsType[*encode.ColumnError](err)
	_, row := errors.AsType[*encode.RowError](err)
	return table || row
}
