package encode

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// Describe returns the current definition of a relation's columns from the catalog. The stream may be at
// an earlier definition, or at a table that was dropped since. Describe may block.
type Describe func(rel *decoder.Relation) ([]connect.Column, error)

// any reports whether any part is encoded.
func (e Encodings) any() bool {
	return slices.ContainsFunc([]connect.Encoding{e.Key, e.Value, e.Headers}, func(e connect.Encoding) bool {
		return e != "" && e != connect.Raw
	})
}

// SetDescribe sets the function that the Router calls if it needs more than the stream says about a
// column: what a domain or a type of an extension is, whether the column may be NULL, and its default.
// Check, Route and RouteUpdate return its errors, wrapped. Without describe, they return an error if they
// need it.
func (r *Router) SetDescribe(describe Describe) { r.describe = describe }

// firstUserOID is the lowest OID of a type that is not built in (FirstNormalObjectId).
const firstUserOID = 16384

// typing finds the types of the columns of a relation. It calls describe at most once, and only if it
// must.
type typing struct {
	rel       *decoder.Relation
	describe  Describe
	modes     connect.Modes
	described map[string]connect.Column // nil: describe was not called yet
	err       error                     // of describe
	builtIns  *pgtype.Map
}

// column returns the definition of a column. Nullability and default are valid only if all is set. For a
// built-in type, it uses the type in the stream, because the catalog may have changed since.
func (t *typing) column(f field, all bool) connect.Column {
	if f.name == "" {
		return connect.Column{}
	}
	c := t.rel.Columns[f.index]
	column := connect.Column{Name: c.Name, Nullable: true, Type: t.builtIn(c.TypeOID, c.TypeModifier)}
	if !all && c.TypeOID < firstUserOID {
		return column
	}
	described, ok := t.ask()[c.Name]
	switch {
	case !ok:
		return column
	case c.TypeOID < firstUserOID:
		described.Type = column.Type
	}
	return described
}

func (t *typing) ask() map[string]connect.Column {
	if t.described != nil {
		return t.described
	}
	t.described = map[string]connect.Column{}
	if t.describe == nil {
		t.err = errors.New("no access to the catalog")
		return t.described
	}
	var columns []connect.Column
	columns, t.err = t.describe(t.rel)
	for _, c := range columns {
		t.described[c.Name] = c
	}
	return t.described
}

// builtIn returns the type for an OID of a built-in type.
func (t *typing) builtIn(oid uint32, modifier int32) connect.Type {
	if t.builtIns == nil {
		t.builtIns = pgtype.NewMap()
	}
	typ := connect.Type{OID: oid, Kind: 'b', Modifier: modifier}
	known, ok := t.builtIns.TypeForOID(oid)
	if !ok {
		return typ
	}
	typ.Name = known.Name
	switch codec := known.Codec.(type) {
	case *pgtype.ArrayCodec:
		typ.Elem = new(t.builtIn(codec.ElementType.OID, modifier))
	case *pgtype.RangeCodec:
		typ.Kind = 'r'
	case *pgtype.MultirangeCodec:
		typ.Kind = 'm'
	}
	return typ
}
