package encode

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// Describe returns the definition of a relation's columns from the catalog, with the types that they have in the
// relation. The stream may be at an earlier definition of the table, or at a table that was dropped since: a column
// that the table does not have any more is nullable and has no default. If the type was dropped, its Name is empty.
// Describe may block.
type Describe func(rel *decoder.Relation) ([]format.Column, error)

// any reports whether any part is encoded.
func (e Encodings) any() bool {
	return slices.ContainsFunc([]format.Encoding{e.Key, e.Value, e.Headers}, func(e format.Encoding) bool {
		return e != "" && e != format.Raw
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
	described map[string]format.Column // nil: describe was not called yet
	err       error                    // of describe
	builtIns  *pgtype.Map
}

// column returns the definition of a column. Nullability and default are valid only if all is set. For a
// built-in type, it uses the type in the stream, because the catalog may have changed since.
func (t *typing) column(f field, all bool) format.Column {
	if f.name == "" {
		return format.Column{}
	}
	c := t.rel.Columns[f.index]
	column := format.Column{Name: c.Name, Nullable: true, Type: t.builtIn(c.TypeOID, c.TypeModifier)}
	if !all && c.TypeOID < firstUserOID {
		return column
	}
	described, ok := t.ask()[c.Name]
	switch {
	case !ok && c.TypeOID < firstUserOID:
		return column
	case c.TypeOID < firstUserOID:
		described.Type = column.Type
	case !ok || described.Type.Name == "":
		described.Name, described.Nullable, described.Default = c.Name, described.Nullable || !ok, nil
		described.Type = t.dropped(c)
	}
	return described
}

// oid returns the OID of the type of a column or, for a domain, of its base type. It asks the catalog only if the stream
// does not name that type.
func (t *typing) oid(f field) uint32 {
	switch c := t.rel.Columns[f.index]; {
	case c.TypeOID < firstUserOID:
		return c.TypeOID
	case c.BaseName != "":
		return t.dropped(c).OID
	}
	return t.column(f, false).Type.OID
}

// dropped returns what the stream says about a type that the catalog does not have any more.
func (t *typing) dropped(c decoder.Column) format.Type {
	typ := format.Type{OID: c.TypeOID, Kind: 'b', Modifier: -1}
	if c.BaseNamespace == "" && c.BaseName != "" { // a domain over a built-in type
		if known, ok := t.builtInTypes().TypeForName(c.BaseName); ok {
			typ = t.builtIn(known.OID, -1)
		}
	}
	typ.Name, typ.Dropped = c.BaseName, true
	return typ
}

func (t *typing) ask() map[string]format.Column {
	if t.described != nil {
		return t.described
	}
	t.described = map[string]format.Column{}
	if t.describe == nil {
		t.err = errors.New("no access to the catalog")
		return t.described
	}
	var columns []format.Column
	columns, t.err = t.describe(t.rel)
	for _, c := range columns {
		t.described[c.Name] = c
	}
	return t.described
}

// builtIn returns the type for an OID of a built-in type.
func (t *typing) builtIn(oid uint32, modifier int32) format.Type {
	typ := format.Type{OID: oid, Kind: 'b', Modifier: modifier}
	known, ok := t.builtInTypes().TypeForOID(oid)
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

func (t *typing) builtInTypes() *pgtype.Map {
	if t.builtIns == nil {
		t.builtIns = pgtype.NewMap()
	}
	return t.builtIns
}
