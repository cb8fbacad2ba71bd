package relay

import (
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// Relation returns a table of the catalog as the stream would define it.
func Relation(t catalog.Table) *decoder.Relation {
	rel := &decoder.Relation{OID: t.OID, Namespace: t.Schema, Name: t.Name}
	for _, c := range t.Columns {
		rel.Columns = append(rel.Columns, decoder.Column{Name: c.Name, TypeOID: c.TypeOID, TypeModifier: c.TypeModifier})
	}
	return rel
}

// SetRow makes row the one that values are the texts of, nil for NULL, as the stream would bring
// it. It aliases values.
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
