package decoder

import "bytes"

// A Relation is the definition of a table at a point of the stream. It never changes.
// When the table does, later rows have a new Relation. So pointers may be compared
// and used as map keys.
type Relation struct {
	OID             uint32
	Namespace, Name string // the namespace pg_catalog is ""
	ReplicaIdentity byte   // pg_class.relreplident: 'd' default, 'n' nothing, 'f' full, 'i' index
	Columns         []Column
}

// A Column is a published column of a relation. Rows have their values in the order
// of the columns.
type Column struct {
	Name         string
	TypeOID      uint32
	TypeModifier int32 // pg_attribute.atttypmod; -1 for none
	Key          bool  // part of the replica identity

	// BaseNamespace and BaseName are those of the type or, for a domain, of its base type, as of when the row was
	// written. The namespace pg_catalog is "". The server does not send them for a built-in type.
	BaseNamespace, BaseName string
}

// A definition is a relation and the message that defined it.
type definition struct {
	relation *Relation
	message  []byte
}

// minColumn is the size of a column with an empty name: flags, terminator, type OID and
// type modifier.
const minColumn = 1 + 1 + 4 + 4

// readRelation returns the relation that the message defines. Servers repeat
// definitions; an unchanged one returns the same pointer as before.
func (d *Decoder) readRelation(c *cursor) Output {
	oid := c.uint32()
	if known, ok := d.relations[oid]; ok && bytes.Equal(known.message, c.data) && d.hasTypes(known.relation) {
		c.offset = len(c.data)
		return known.relation
	}
	r := &Relation{
		OID:             oid,
		Namespace:       string(c.name()),
		Name:            string(c.name()),
		ReplicaIdentity: c.uint8(),
	}
	if n := c.count("columns", 2, minColumn); n > 0 {
		r.Columns = make([]Column, n)
	}
	for i := range r.Columns {
		r.Columns[i] = Column{
			Key:          c.flags(1) == 1,
			Name:         string(c.name()),
			TypeOID:      c.uint32(),
			TypeModifier: int32(c.uint32()),
		}
		base := d.types[r.Columns[i].TypeOID]
		r.Columns[i].BaseNamespace, r.Columns[i].BaseName = base.Namespace, base.Name
	}
	if c.end(); c.reason != "" {
		return nil
	}
	d.relations[oid] = definition{relation: r, message: bytes.Clone(c.data)}
	if d.recent != nil && d.recent.OID == oid {
		d.recent = r
	}
	return r
}

// hasTypes reports whether the types of the columns of r are those that the server sent last.
func (d *Decoder) hasTypes(r *Relation) bool {
	for i := range r.Columns {
		column := &r.Columns[i]
		if base := d.types[column.TypeOID]; base.Name != column.BaseName || base.Namespace != column.BaseNamespace {
			return false
		}
	}
	return true
}

// relation reads an OID and returns its relation. On failure it returns a relation
// without columns, so that callers need no check.
func (d *Decoder) relation(c *cursor) *Relation {
	oid := c.uint32()
	if d.recent != nil && d.recent.OID == oid {
		return d.recent
	}
	known, ok := d.relations[oid]
	if !ok {
		c.failf("relation %d has no definition", oid)
		return &Relation{}
	}
	d.recent = known.relation
	return known.relation
}
