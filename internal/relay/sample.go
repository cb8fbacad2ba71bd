package relay

import (
	"context"
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
		router.SetDescribe((&Relay{cfg: cfg.withDefaults()}).describe(ctx))
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
