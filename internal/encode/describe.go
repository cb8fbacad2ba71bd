package encode

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// Describe tells what the catalog says of a relation's columns now: the stream may be about an
// earlier definition, or a table that is gone. It may block on the server.
type Describe func(rel *decoder.Relation) ([]connect.Column, error)

// any reports whether any part is encoded.
func (e Encodings) any() bool {
	return slices.ContainsFunc([]connect.Encoding{e.Key, e.Value, e.Headers}, func(e connect.Encoding) bool {
		return e != "" && e != connect.Raw
	})
}

// SetDescribe has the Router ask describe where the stream does not say enough of a column: it
// knows the built-in types, but not what a domain or an extension's type is, what may be NULL,
// and which columns have defaults. Its errors are returned, wrapped, by Check, Route and
// RouteUpdate; without it they fail where they would have to ask.
func (r *Router) SetDescribe(describe Describe) { r.describe = describe }

// firstUserOID is the lowest OID of a type that is not built in (FirstNormalObjectId).
const firstUserOID = 16384

// typing says what types the columns of a relation have. The catalog is asked at most once, and
// only if need be.
type typing struct {
	rel       *decoder.Relation
	describe  Describe
	modes     connect.Modes
	described map[string]connect.Column // nil: not asked yet
	err       error                     // of describe
	builtIns  *pgtype.Map
}

// column returns the type of a column. Whether it may be NULL and its default are right only
// where all is asked for. What the stream says of a built-in type stands: the catalog may be
// of another time.
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
		t.err = errors.New("nobody knows the catalog")
		return t.described
	}
	var columns []connect.Column
	columns, t.err = t.describe(t.rel)
	for _, c := range columns {
		t.described[c.Name] = c
	}
	return t.described
}

// builtIn returns what is known of a type by its number alone.
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
