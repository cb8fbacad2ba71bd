package audit

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// standInPrefix begins what stands for the id of a row without one. No text of a column begins with it.
const standInPrefix = "\x00"

// standIn returns what stands for the id of a row without one, for which there can only be a dead letter: a hash of the columns that both
// have, which are all but the payload. Not every broker tells NULL from an empty text, and keeps the order.
func standIn(columns []sink.Header, payload encode.ColumnNames) []byte {
	var parts [][]byte
	for _, c := range columns {
		if !slices.Contains(payload, c.Key) {
			part := sha256.Sum256([]byte(c.Key + "\x00" + string(c.Value)))
			parts = append(parts, part[:])
		}
	}
	slices.SortFunc(parts, bytes.Compare)
	sum := sha256.Sum256(slices.Concat(parts...))
	return append([]byte(standInPrefix), sum[:]...)
}

// isStandIn reports whether id is the result of standIn.
func isStandIn(id []byte) bool { return bytes.HasPrefix(id, []byte(standInPrefix)) }

// setStandIn sets the header id of rec, made of a row without id that cannot become a record, to what stands for it.
func (t *table) setStandIn(rec *sink.Record, values [][]byte) {
	var columns []sink.Header
	for i, c := range t.rows.Table.Columns {
		columns = append(columns, sink.Header{Key: c.Name, Value: values[i]})
	}
	rec.Headers = slices.DeleteFunc(rec.Headers, func(h sink.Header) bool { return h.Key == encode.IDHeader })
	rec.Headers = append(rec.Headers, sink.Header{Key: encode.IDHeader, Value: standIn(columns, t.payload)})
}
