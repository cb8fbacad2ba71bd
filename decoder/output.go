package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// An Output is a decoded message. It belongs to its Decoder and is valid until the
// next Decode; copy what you keep. Relations and strings stay valid.
//
//sumtype:decl
type Output interface{ output() }

// Begin opens a transaction. Every message up to its Commit belongs to it. Postgres
// sends committed transactions only, in commit order.
type Begin struct {
	CommitLSN  pglogrepl.LSN // start of the commit record; the same as in Commit
	CommitTime time.Time     // UTC
	XID        uint32
}

// Commit ends the transaction. EndLSN, the first byte after the commit record, is the
// position that confirms the transaction. CommitLSN does not confirm it.
type Commit struct {
	CommitLSN, EndLSN pglogrepl.LSN
	CommitTime        time.Time // UTC
}

// Origin says that the open transaction was replicated from another server.
type Origin struct {
	CommitLSN pglogrepl.LSN // of the transaction on the origin server
	Name      string
}

// Type describes a data type that is not built in. It precedes the Relation that uses
// the type. For a domain, Namespace and Name are those of its base type. The
// namespace pg_catalog is "".
type Type struct {
	OID             uint32
	Namespace, Name string
}

// Insert is an inserted row.
type Insert struct {
	Relation *Relation
	Row      []Value // one for each column of Relation
}

// Update is an updated row.
type Update struct {
	Relation *Relation
	OldKind  OldKind
	Old      []Value // nil if OldKind is OldNone
	New      []Value
}

// Delete is a deleted row. OldKind is never OldNone.
type Delete struct {
	Relation *Relation
	OldKind  OldKind
	Old      []Value
}

// Truncate is a TRUNCATE statement.
type Truncate struct {
	Relations                []*Relation
	Cascade, RestartIdentity bool
}

// LogicalMessage is a message written by pg_logical_emit_message. Postgres sends a
// non-transactional one outside of transactions, and even if the transaction that
// wrote it was rolled back.
type LogicalMessage struct {
	LSN           pglogrepl.LSN
	Transactional bool
	Prefix        string
	Content       []byte
}

// A Value is one column of a row. Data is a slice of the message. It is nil if Kind is
// Null or Unchanged, and never nil if Kind is Text or Binary, even for an empty value.
type Value struct {
	Kind Kind
	Data []byte
}

// Kind is the format of a Value.
type Kind byte

const (
	// Null is SQL's NULL.
	Null Kind = 'n'
	// Unchanged is a TOAST value that the update did not change. Postgres does not send it.
	Unchanged Kind = 'u'
	// Text is a value in text format: the result of the type's output function.
	Text Kind = 't'
	// Binary is a value in binary format: the result of the type's send function.
	Binary Kind = 'b'
)

// OldKind says which columns of the old row an Update or Delete contains. It depends
// on the replica identity of the relation.
type OldKind byte

const (
	// OldNone means no old row: the update did not change the replica identity.
	OldNone OldKind = 0
	// OldKey means the columns of the replica identity; the others are Null.
	OldKey OldKind = 'K'
	// OldRow means the whole row (REPLICA IDENTITY FULL).
	OldRow OldKind = 'O'
)

func (*Begin) output()          {}
func (*Commit) output()         {}
func (*Origin) output()         {}
func (*Type) output()           {}
func (*Relation) output()       {}
func (*Insert) output()         {}
func (*Update) output()         {}
func (*Delete) output()         {}
func (*Truncate) output()       {}
func (*LogicalMessage) output() {}
