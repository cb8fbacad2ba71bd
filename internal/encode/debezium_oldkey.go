package encode

import (
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// oldKeyHeader is the header with the previous identity of a row.
const oldKeyHeader = "__debezium.oldkey"

// An oldKey makes oldKeyHeader.
type oldKey struct {
	columns []field
	object  *connect.Struct
	texts   [][]byte
}

// oldKey adds oldKeyHeader.
func (b *builder) oldKey(k *oldKey, old []decoder.Value) {
	for i := range k.columns {
		text, reason := k.columns[i].text(old)
		if reason != "" {
			b.fail(k.columns[i].name, reason)
		}
		k.texts[i] = text
	}
	enc := format.JSON // SimpleHeaderConverter writes a struct as JSON too
	if b.r.cfg.Encoding.Headers == format.JSONSchema {
		enc = format.JSONSchema
	}
	b.header(oldKeyHeader, b.scratch(b.plan.id.name, func(dst []byte) ([]byte, error) {
		return k.object.Append(dst, enc, b.r.cfg.Debezium.Name+"."+b.plan.table+".Key", nil, k.texts)
	}))
}

// makeOldKey sets p.oldKey if context headers are configured. The error is a *RowError, or that of
// describe.
func (r *Router) makeOldKey(p *plan) error {
	if d := r.cfg.Debezium; p.oldKey != nil || !d.ContextHeaders && !d.Exact {
		return nil
	}
	k := &oldKey{columns: p.keys()}
	k.texts = make([][]byte, len(k.columns))
	types := typing{rel: p.relation, describe: r.describe}
	var fields []connect.NamedField
	for _, c := range k.columns {
		of, err := connect.NewField(types.column(c, r.cfg.Encoding.Headers == format.JSONSchema), r.cfg.Debezium.modes())
		if types.err != nil {
			return types.err
		}
		if err != nil {
			return &RowError{table: p.table, column: c.name, reason: err.Error()}
		}
		fields = append(fields, connect.NamedField{Name: c.name, Field: of})
	}
	k.object = connect.NewStruct(fields, nil)
	p.oldKey = k
	return nil
}
