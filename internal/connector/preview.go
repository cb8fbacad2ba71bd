package connector

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Preview returns the records that up to n of the last rows of a table would become, without
// sending any: made by the same router from the same texts. A row that cannot become one ends
// them, with a *[route.RowError]; a table that cannot is a *[route.ColumnError]. Of the
// transaction, which is gone, they have nothing but the present time. Of cfg, Source.Conn, Route and
// StartupTimeout count.
func Preview(ctx context.Context, cfg Config, table string, n int) ([]sink.Record, error) {
	router, err := route.New(cfg.Route)
	if err != nil {
		return nil, err
	}
	c := &Connector{cfg: cfg}
	router.SetDescribe(c.describe(ctx))
	t, rows, err := replication.LastRows(ctx, cfg.Source.Conn, table, n)
	if err != nil {
		return nil, err
	}
	rel := relation(*t)
	err = router.Check(rel)
	var records []sink.Record
	now := time.Now()
	for i, values := range rows {
		var rec sink.Record
		if err != nil {
			break
		}
		if err = router.Route(route.Tx{CommitTime: now, Timestamp: now}, i, row(rel, values), &rec); err == nil {
			records = append(records, clone(rec))
		}
	}
	return records, err
}

// row returns a row of the catalog's texts as the stream would bring it.
func row(rel *decoder.Relation, values [][]byte) *decoder.Insert {
	insert := &decoder.Insert{Relation: rel}
	for _, v := range values {
		if v == nil {
			insert.Row = append(insert.Row, decoder.Value{Kind: decoder.Null})
			continue
		}
		insert.Row = append(insert.Row, decoder.Value{Kind: decoder.Text, Data: v})
	}
	return insert
}

// clone copies what belongs to the router.
func clone(rec sink.Record) sink.Record {
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
	_, table := errors.AsType[*route.ColumnError](err)
	_, row := errors.AsType[*route.RowError](err)
	return table || row
}
