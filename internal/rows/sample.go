package rows

import (
	"cmp"
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// CheckTable returns an [*encode.ColumnError] if rows of t cannot become records.
func CheckTable(ctx context.Context, cfg Config, t catalog.Table) error {
	router, err := cfg.NewRouter(ctx)
	if err != nil {
		return err
	}
	return Explain(router.Check(Relation(t)), t)
}

// Sample makes records from up to n of the last rows of a table, as [Preview] does, and calls visit with
// each record, or with the reason why a row cannot become one. The record is valid until visit returns.
// Sample stops if visit returns false. The error is about the table or the server.
func Sample(ctx context.Context, cfg Config, table string, n int, visit func(rec *sink.Record, rejected error) (more bool)) error {
	router, err := cfg.NewRouter(ctx)
	if err != nil {
		return err
	}
	t, rows, err := catalog.LastRows(ctx, cfg.Source, table, n)
	if err != nil {
		return err
	}
	ofTable, err := NewTableRouter(router, *t)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, values := range rows {
		if !visit(ofTable.Route(encode.Tx{CommitTime: now, Timestamp: now}, i, values)) {
			return nil
		}
	}
	return nil
}

// Preview returns the records for up to n of the last rows of a table, without sending them. It stops
// with an [*encode.RowError] at a row that cannot become a record, and with an [*encode.ColumnError] if no
// row of the table can. The commit times are unknown, so the records have the current time.
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
