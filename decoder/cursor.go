package decoder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// A cursor reads a message from start to end. The first failure sets reason and
// truncates data at the offset. After that, remaining is 0 and every read
// returns zero, so a message that lies about a length or a count costs neither
// memory nor time.
type cursor struct {
	data   []byte
	offset int
	reason string // of the first failure; "" if there is none
}

// remaining returns the number of unread bytes.
func (c *cursor) remaining() int { return len(c.data) - c.offset }

func (c *cursor) fail(reason string) {
	if c.reason == "" {
		c.reason, c.data = reason, c.data[:c.offset]
	}
}

func (c *cursor) failf(format string, args ...any) {
	c.fail(fmt.Sprintf(format, args...))
}

// next returns the next n bytes. It fails and returns nil if fewer are left.
func (c *cursor) next(n int) []byte {
	if n > c.remaining() {
		c.failShort(n)
		return nil
	}
	b := c.data[c.offset : c.offset+n : c.offset+n]
	c.offset += n
	return b
}

func (c *cursor) failShort(n int) {
	c.failf("needs %d more bytes, has %d", n, c.remaining())
}

func (c *cursor) uint8() byte {
	if c.offset >= len(c.data) {
		c.failShort(1)
		return 0
	}
	b := c.data[c.offset]
	c.offset++
	return b
}

func (c *cursor) uint16() uint16 {
	b := c.next(2)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func (c *cursor) uint32() uint32 {
	b := c.next(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (c *cursor) uint64() uint64 {
	b := c.next(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (c *cursor) lsn() pglogrepl.LSN {
	return pglogrepl.LSN(c.uint64())
}

// flags reads a byte and fails if a bit outside known is set.
func (c *cursor) flags(known byte) byte {
	b := c.uint8()
	if b&^known != 0 {
		c.failf("unknown flags %#x", b)
	}
	return b
}

// count reads an integer of size bytes, 2 or 4, that says how many items follow.
// It fails unless the rest of the message can hold them, at itemSize bytes or more
// each.
func (c *cursor) count(what string, size, itemSize int) int {
	var n int
	if size == 2 {
		n = int(int16(c.uint16()))
	} else {
		n = int(int32(c.uint32()))
	}
	if n < 0 || n > c.remaining()/itemSize {
		c.failf("%d %s in %d bytes", n, what, c.remaining())
		return 0
	}
	return n
}

// bytes reads a length, then as many bytes.
func (c *cursor) bytes() []byte {
	n := int32(c.uint32())
	if n < 0 {
		c.failf("length %d", n)
		return nil
	}
	return c.next(int(n))
}

// name reads a string up to its terminating zero byte.
func (c *cursor) name() []byte {
	n := bytes.IndexByte(c.data[c.offset:c.offset+c.remaining()], 0)
	if n < 0 {
		c.fail("string is not terminated")
		return nil
	}
	b := c.next(n)
	c.offset++
	return b
}

// postgresEpoch is 2000-01-01 UTC in Unix seconds.
const postgresEpoch = 946_684_800

// time reads a timestamp in microseconds since 2000-01-01. It splits off the seconds
// before it adds the epoch, because 'infinity' and '-infinity' are the largest and the
// smallest int64 and would overflow.
func (c *cursor) time() time.Time {
	us := int64(c.uint64())
	return time.Unix(postgresEpoch+us/1e6, us%1e6*1e3).UTC()
}

// end fails if bytes are left.
func (c *cursor) end() {
	if n := c.remaining(); n > 0 {
		c.failf("%d trailing bytes", n)
	}
}
