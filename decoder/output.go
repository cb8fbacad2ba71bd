package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// An Output is what one message says. It belongs to the Decoder that returned
// it and is valid until the next Decode: a caller copies what it keeps. Only
// relations and strings live on.
//
//sumtype:decl
type Output interface{ output() }

// Begin opens a transaction: everything up to its Commit belongs to it. Only
// committed transactions are sent, in the order of their commits.
type Begin struct {
	CommitLSN  pglogrepl.LSN // where the commit record begins; the same as in Commit
	CommitTime time.Time     // UTC
	XID        uint32
}

// Commit ends the transaction. EndLSN, the first byte behind the commit record,
// is the position that confirms the transaction; CommitLSN does not.
type Commit struct {
	CommitLSN, EndLSN pglogrepl.LSN
	CommitTime        time.Time // UTC
}

// Origin tells, within a transaction, that it was replicated from elsewhere.
type Origin struct {
	CommitLSN pglogrepl.LSN // where the transaction was committed on the origin server
	Name      string
}

// Type describes a type that is not built in, before the Relation that uses it.
// For a domain Namespace and Name are those of its base type. The namespace
// pg_catalog is sent as "".
type Type struct {
	OID             uint32
	Namespace, Name string
}

// Insert is a new row.
type Insert struct {
	Relation *Relation
	Row      []Value // one for each column of Relation
}

// Update is a changed row.
type Update struct {
	Relation *Relation
	OldKind  OldKind
	Old      []Value // nil if OldKind is OldNone
	New      []Value
}

// Delete is a removed row. OldKind is never OldNone.
type Delete struct {
	Relation *Relation
	OldKind  OldKind
	Old      []Value
}

// Truncate empties relations, in one statement.
type Truncate struct {
	Relations                []*Relation
	Cascade, RestartIdentity bool
}

// LogicalMessage is what a call of pg_logical_emit_message wrote. One that is
// not transactional comes outside of transactions, even if the transaction
// that wrote it was rolled back.
type LogicalMessage struct {
	LSN           pglogrepl.LSN
	Transactional bool
	Prefix        string
	Content       []byte
}

// A Value is one column of a row. Data is in the message's memory; it is nil
// unless Kind is Text or Binary, and then is not nil, even if empty.
type Value struct {
	Kind Kind
	Data []byte
}

// Kind tells how a Value is given.
type Kind byte

const (
	// Null is SQL's NULL.
	Null Kind = 'n'
	// Unchanged is a value stored out of line (TOAST) that an Update has left
	// as it was and that is not sent.
	Unchanged Kind = 'u'
	// Text is a value as the type's output function prints it.
	Text Kind = 't'
	// Binary is a value as the type's send function encodes it.
	Binary Kind = 'b'
)

// OldKind tells which of the old row's columns an Update or Delete carries, by
// the relation's replica identity.
type OldKind byte

const (
	// OldNone is an Update that left the key alone: no old row.
	OldNone OldKind = 0
	// OldKey is a row in which only the columns of the key are not Null.
	OldKey OldKind = 'K'
	// OldRow is the whole row.
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
