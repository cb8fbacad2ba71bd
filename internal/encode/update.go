package encode

import (
	"bytes"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// RouteUpdate is Route for an updated row. If the identity of the row has changed, it fills rec and returns
// true: for Debezium, that is a new row. Otherwise it drops the update and returns false. With [UpdateStop],
// every update is a *RowError. index counts routed rows only.
func (r *Router) RouteUpdate(tx Tx, index int, change *decoder.Update, rec *sink.Record) (routed bool, err error) {
	p, err := r.planFor(change.Relation)
	if err != nil {
		return false, err
	}
	if !r.cfg.TakesUpdates() {
		id, _ := p.id.text(change.New)
		return false, &RowError{table: p.table, ID: string(id), reason: "was changed by an UPDATE, and only INSERTs are events"}
	}
	if !p.newIdentity(change) {
		return false, nil
	}
	if err := r.makeOldKey(p); err != nil {
		return true, err
	}
	row := change.New
	if change.OldKind == decoder.OldRow {
		row = present(change.New, change.Old)
	}
	return true, r.record(p, tx, index, row, change.Old, rec)
}

// keys returns the columns of the identity of p's rows. With REPLICA IDENTITY FULL the stream does not say
// which these are; keys then returns the id column.
func (p *plan) keys() []field {
	var keys []field
	for i, c := range p.relation.Columns {
		if c.Key && p.relation.ReplicaIdentity != 'f' {
			keys = append(keys, field{name: c.Name, index: i, oid: c.TypeOID})
		}
	}
	if keys == nil {
		keys = []field{{name: p.id.name, index: p.id.index, oid: p.id.oid}}
	}
	return keys
}

// newIdentity reports whether change changes the identity of the row.
func (p *plan) newIdentity(change *decoder.Update) bool {
	if change.OldKind == decoder.OldNone {
		return false
	}
	for _, k := range p.keys() {
		before, after := change.Old[k.index], change.New[k.index]
		if after.Kind != decoder.Unchanged && (before.Kind != after.Kind || !bytes.Equal(before.Data, after.Data)) {
			return true
		}
	}
	return false
}

// present returns row with its unchanged TOAST values taken from old.
func present(row, old []decoder.Value) []decoder.Value {
	out := make([]decoder.Value, len(row))
	for i, v := range row {
		if out[i] = v; v.Kind == decoder.Unchanged {
			out[i] = old[i]
		}
	}
	return out
}
