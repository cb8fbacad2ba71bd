package decoder

import (
	"github.com/jackc/pglogrepl"
)

// The types of messages in protocol version 1.
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

// A Decoder reads the messages of one replication session. It is for one
// goroutine. After an error its state is that before the message, but the
// session has a gap: whoever goes on reading confirms a message it has not
// understood.
type Decoder struct {
	relations map[uint32]definition // by OID, as last defined
	recent    *Relation             // the one last used by a row; equal to the one in relations

	open      bool          // a transaction is: its Begin was read, its Commit was not
	commitLSN pglogrepl.LSN // its commit LSN
	endLSN    pglogrepl.LSN // end LSN of the transaction before; no commit LSN read later is lower

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

	large bool // the fields above may point into more than largeMessage bytes
}

// largeMessage is the size above which the decoder drops its pointers into a message when the next one
// arrives. Otherwise a column that later rows lack, an old row or a logical message would keep it in
// memory.
const largeMessage = 256 << 10

// New returns a Decoder for a session that begins.
func New() *Decoder {
	return &Decoder{relations: make(map[uint32]definition)}
}

// Decode parses one message, which starts at the position start. The Output and
// everything in it is valid until the next Decode and is in data's memory;
// *Relation values are immutable and live on. The error is an *Error.
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
	// Only a message that is right in itself and in its place opens or closes a
	// transaction.
	switch t {
	case typeBegin:
		d.open, d.commitLSN = true, d.begin.CommitLSN
	case typeCommit:
		d.open, d.endLSN = false, d.commit.EndLSN
	}
	return out, nil
}

// read parses the rest of a message of type t. What it returns is good only if
// c has not failed at the end.
func (d *Decoder) read(c *cursor, t byte) Output {
	switch t {
	case typeInsert:
		d.inside(c)
		return d.readInsert(c)
	case typeBegin:
		return d.readBegin(c)
	case typeCommit:
		d.inside(c)
		return d.readCommit(c)
	case typeRelation:
		return d.readRelation(c)
	case typeUpdate:
		d.inside(c)
		return d.readUpdate(c)
	case typeDelete:
		d.inside(c)
		return d.readDelete(c)
	case typeTruncate:
		d.inside(c)
		return d.readTruncate(c)
	case typeType:
		d.typ = Type{OID: c.uint32(), Namespace: string(c.name()), Name: string(c.name())}
		return &d.typ
	case typeOrigin:
		d.inside(c)
		d.origin = Origin{CommitLSN: c.lsn(), Name: reuse(d.origin.Name, c.name())}
		return &d.origin
	case typeMessage:
		return d.readMessage(c)
	default:
		c.fail(unknownType(t))
		return nil
	}
}

// inside fails unless a transaction is open.
func (d *Decoder) inside(c *cursor) {
	if !d.open {
		c.fail("no transaction is open")
	}
}

func (d *Decoder) readBegin(c *cursor) Output {
	if d.open {
		c.fail("a transaction is open")
	}
	d.begin = Begin{CommitLSN: c.lsn(), CommitTime: c.time(), XID: c.uint32()}
	if d.begin.CommitLSN < d.endLSN { // equal is right: commit records may adjoin
		c.failf("commit LSN %s lies before %s, the end of the transaction before", d.begin.CommitLSN, d.endLSN)
	}
	return &d.begin
}

func (d *Decoder) readCommit(c *cursor) Output {
	c.flags(0)
	d.commit = Commit{CommitLSN: c.lsn(), EndLSN: c.lsn(), CommitTime: c.time()}
	if d.commit.CommitLSN != d.commitLSN {
		c.failf("commit LSN %s is not the one of Begin", d.commit.CommitLSN)
	}
	if d.commit.EndLSN <= d.commit.CommitLSN {
		c.failf("end LSN %s is not behind commit LSN %s", d.commit.EndLSN, d.commit.CommitLSN)
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
		d.inside(c)
	}
	return &d.message
}

// reuse returns b as a string: the one before, if that is equal.
func reuse(before string, b []byte) string {
	if before == string(b) {
		return before
	}
	return string(b)
}
