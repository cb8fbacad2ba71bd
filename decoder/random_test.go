package decoder

import (
	"math"
	"time"

	"github.com/jackc/pglogrepl"
)

// A random generates valid sessions from bytes. Every choice uses the next byte, or zero if none is
// left.
type random struct {
	choices   []byte
	relations []*Relation
	types     map[uint32]*Type // the last of each OID
	wal       pglogrepl.LSN
	open      *Begin
}

func (r *random) choose(n int) int {
	if len(r.choices) == 0 {
		return 0
	}
	b := r.choices[0]
	r.choices = r.choices[1:]
	return int(b) % n
}

func (r *random) number() (n uint64) {
	for range r.choose(9) {
		n = n<<8 | uint64(r.choose(256))
	}
	return n
}

func (r *random) data() []byte {
	b := make([]byte, r.choose(20))
	for i := range b {
		b[i] = byte(r.choose(256))
	}
	return b
}

// name returns a string without NUL.
func (r *random) name() string {
	b := r.data()
	for i := range b {
		b[i] = max(b[i], 1)
	}
	return string(b)
}

func (r *random) time() time.Time {
	us := int64(r.number())
	switch r.choose(10) {
	case 1:
		us = math.MaxInt64
	case 2:
		us = math.MinInt64
	}
	return time.Unix(postgresEpoch+us/1e6, us%1e6*1e3).UTC()
}

// next returns the next message of the session.
func (r *random) next() Output {
	switch kind := r.choose(12); {
	case kind == 0:
		return r.relation()
	case kind == 1:
		typ := &Type{OID: uint32(r.number()), Namespace: r.name(), Name: r.name()}
		if r.types == nil {
			r.types = make(map[uint32]*Type)
		}
		r.types[typ.OID] = typ
		return typ
	case kind == 2:
		return &LogicalMessage{LSN: pglogrepl.LSN(r.number()), Prefix: r.name(), Content: r.data()}
	case r.open == nil:
		r.wal += pglogrepl.LSN(r.choose(2) * 8)
		r.open = &Begin{CommitLSN: r.wal, CommitTime: r.time(), XID: uint32(r.number())}
		return r.open
	case kind == 3:
		lsn := r.open.CommitLSN
		r.open, r.wal = nil, lsn+48
		return &Commit{CommitLSN: lsn, EndLSN: r.wal, CommitTime: r.time()}
	case kind == 4:
		return &Origin{CommitLSN: pglogrepl.LSN(r.number()), Name: r.name()}
	case kind == 5:
		return &LogicalMessage{LSN: pglogrepl.LSN(r.number()), Transactional: true, Prefix: r.name(), Content: r.data()}
	case len(r.relations) == 0:
		return r.relation()
	default:
		return r.change(kind)
	}
}

func (r *random) change(kind int) Output {
	rel := r.known()
	switch kind {
	case 6:
		m := &Truncate{Cascade: r.choose(2) == 1, RestartIdentity: r.choose(2) == 1}
		for range r.choose(4) {
			m.Relations = append(m.Relations, r.known())
		}
		return m
	case 7:
		return &Delete{Relation: rel, OldKind: OldKey, Old: r.row(rel)}
	case 8:
		return &Update{Relation: rel, OldKind: OldRow, Old: r.row(rel), New: r.row(rel)}
	case 9:
		return &Update{Relation: rel, New: r.row(rel)}
	default:
		return &Insert{Relation: rel, Row: r.row(rel)}
	}
}

func (r *random) known() *Relation { return r.relations[r.choose(len(r.relations))] }

// relation returns a new relation or a new definition of a known one.
func (r *random) relation() *Relation {
	rel := &Relation{OID: uint32(r.number()), Namespace: r.name(), Name: r.name(), ReplicaIdentity: "dnfi"[r.choose(4)]}
	for range r.choose(6) {
		c := Column{Name: r.name(), TypeOID: uint32(r.number()), TypeModifier: int32(r.number()), Key: r.choose(2) == 1}
		if typ := r.types[c.TypeOID]; typ != nil {
			c.BaseNamespace, c.BaseName = typ.Namespace, typ.Name
		}
		rel.Columns = append(rel.Columns, c)
	}
	for i, known := range r.relations {
		if r.choose(2) == 1 {
			rel.OID = known.OID
		}
		if known.OID == rel.OID {
			r.relations[i] = rel
			return rel
		}
	}
	r.relations = append(r.relations, rel)
	return rel
}

func (r *random) row(rel *Relation) (row []Value) {
	for range rel.Columns {
		switch kind := [...]Kind{Text, Null, Binary, Unchanged}[r.choose(4)]; kind {
		case Text, Binary:
			row = append(row, Value{Kind: kind, Data: r.data()})
		case Null, Unchanged:
			row = append(row, Value{Kind: kind})
		}
	}
	return row
}
