package decoder

import (
	"github.com/jackc/pglogrepl"
)

// Message types of protocol version 1.
const (
	typeBegin    = 'B'
	typeCommit   = 'C'
	typeOrigin   = 'O'
	typeRelation = 'R'
	typeType     = 'Y'
	typeInsert   = 'I'
	typeUpdate   = 'U'
	typeDelete   = 'D'
	typeTruncate = 'T'
	typeMessage  = 'M'
)

const (
	truncateCascade         = 1
	truncateRestartIdentity = 2

	messageTransactional = 1
)

// A Decoder decodes the messages of one replication session. One goroutine uses it.
//
// An error leaves the Decoder as it was before the message. The session must end
// then: a caller that continued would confirm a message that it could not decode.
type Decoder struct {
	relations map[uint32]definition // by OID, as last defined
	recent    *Relation             // of the last row; the same pointer as in relations
	types     map[uint32]Type       // by OID, as last defined

	open      bool          // a Begin was read, its Commit was not
	commitLSN pglogrepl.LSN // of the open or last transaction
	endLSN    pglogrepl.LSN // of the last complete transaction; later commit LSNs are not lower

	// What Decode returns points to these.
	begin     Begin
	commit    Commit
	origin    Origin
	typ       Type
	insert    Insert
	update    Update
	delete    Delete
	truncate  Truncate
	message   LogicalMessage
	newRow    []Value
	oldRow    []Value
	truncated []*Relation

	large bool // the previous message, which the fields above point into, is larger than largeMessage
}

// largeMessage is the size above which the decoder drops its pointers into a message when the next one
// arrives. Otherwise a column that later rows lack, an old row or a logical message would keep it in
// memory.
const largeMessage = 256 << 10

// New returns a Decoder for a new session.
func New() *Decoder {
	return &Decoder{relations: make(map[uint32]definition), types: make(map[uint32]Type)}
}

// Decode decodes one message. start is the LSN that the server sent with it, and is
// used in errors only. The error is an [*Error].
//
// The Output is valid until the next Decode, and its values are slices of data. A
// [*Relation] stays valid and never changes.
func (d *Decoder) Decode(start pglogrepl.LSN, data []byte) (Output, error) {
	if d.large {
		clear(d.newRow[:cap(d.newRow)])
		clear(d.oldRow[:cap(d.oldRow)])
		d.message = LogicalMessage{}
	}
	d.large = len(data) > largeMessage
	c := cursor{data: data}
	t := c.uint8()
	out := d.read(&c, t)
	if c.end(); c.reason != "" {
		e := &Error{LSN: start, Type: t, Offset: c.offset, Reason: c.reason}
		if d.open {
			e.CommitLSN = d.commitLSN
		}
		return nil, e
	}
	// The state changes here and not in read, because a message can fail up to its last byte.
	switch t {
	case typeBegin:
		d.open, d.commitLSN = true, d.begin.CommitLSN
	case typeCommit:
		d.open, d.endLSN = false, d.commit.EndLSN
	case typeType:
		d.types[d.typ.OID] = d.typ
	}
	return out, nil
}

// read decodes the rest of a message of type t. The result is meaningless if c has
// failed.
func (d *Decoder) read(c *cursor, t byte) Output {
	switch t {
	case typeInsert:
		d.requireOpen(c)
		return d.readInsert(c)
	case typeBegin:
		return d.readBegin(c)
	case typeCommit:
		d.requireOpen(c)
		return d.readCommit(c)
	case typeRelation:
		return d.readRelation(c)
	case typeUpdate:
		d.requireOpen(c)
		return d.readUpdate(c)
	case typeDelete:
		d.requireOpen(c)
		return d.readDelete(c)
	case typeTruncate:
		d.requireOpen(c)
		return d.readTruncate(c)
	case typeType:
		d.typ = Type{OID: c.uint32(), Namespace: string(c.name()), Name: string(c.name())}
		return &d.typ
	case typeOrigin:
		d.requireOpen(c)
		d.origin = Origin{CommitLSN: c.lsn(), Name: reuse(d.origin.Name, c.name())}
		return &d.origin
	case typeMessage:
		return d.readMessage(c)
	default:
		c.fail(unknownType(t))
		return nil
	}
}

// requireOpen fails unless a transaction is open.
func (d *Decoder) requireOpen(c *cursor) {
	if !d.open {
		c.fail("no transaction is open")
	}
}

func (d *Decoder) readBegin(c *cursor) Output {
	if d.open {
		c.fail("the previous transaction is still open")
	}
	d.begin = Begin{CommitLSN: c.lsn(), CommitTime: c.time(), XID: c.uint32()}
	if d.begin.CommitLSN < d.endLSN { // equal is valid: a commit record may start where the previous one ends
		c.failf("commit LSN %s is before the end LSN %s of the previous transaction", d.begin.CommitLSN, d.endLSN)
	}
	return &d.begin
}

func (d *Decoder) readCommit(c *cursor) Output {
	c.flags(0)
	d.commit = Commit{CommitLSN: c.lsn(), EndLSN: c.lsn(), CommitTime: c.time()}
	if d.commit.CommitLSN != d.commitLSN {
		c.failf("commit LSN %s differs from the one in Begin", d.commit.CommitLSN)
	}
	if d.commit.EndLSN <= d.commit.CommitLSN {
		c.failf("end LSN %s is not after commit LSN %s", d.commit.EndLSN, d.commit.CommitLSN)
	}
	return &d.commit
}

func (d *Decoder) readMessage(c *cursor) Output {
	flags := c.flags(messageTransactional)
	d.message = LogicalMessage{
		Transactional: flags&messageTransactional != 0,
		LSN:           c.lsn(),
		Prefix:        reuse(d.message.Prefix, c.name()),
		Content:       c.bytes(),
	}
	if d.message.Transactional {
		d.requireOpen(c)
	}
	return &d.message
}

// reuse returns b as a string, and does not allocate if it equals previous.
func reuse(previous string, b []byte) string {
	if previous == string(b) {
		return previous
	}
	return string(b)
}
