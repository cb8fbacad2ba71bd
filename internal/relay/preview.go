package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

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
