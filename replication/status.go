package replication

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pglogrepl"
)

// minStatusGap is the least time between two status updates. A server that is stopping
// answers each with another request: answered at once, that is a hundred thousand a second.
const minStatusGap = 100 * time.Millisecond

// statusSize is a CopyData message with a Standby status update.
const statusSize = headerSize + 1 + 4*8 + 1

// A reporter tells the server positions.
type reporter struct {
	conn net.Conn

	// limit is the highest position that may be reported: the largest of the start position
	// and of the commit ends and keepalives read. The server believes any position, and
	// after a reconnect skips without an error what lies below one that was too high.
	limit pglogrepl.LSN
	last  pglogrepl.LSN // reported last; never decreases
	sent  time.Time     // when

	buf [statusSize]byte
}

// read notes a position that the server has sent.
func (r *reporter) read(lsn pglogrepl.LSN) { r.limit = max(r.limit, lsn) }

// check says whether confirmed may be sent. If not, nothing may.
func (r *reporter) check(confirmed pglogrepl.LSN) error {
	if confirmed <= r.limit && confirmed >= r.last {
		return nil
	}
	return fmt.Errorf("broken invariant: position %s was to be confirmed after %s, with %s as the highest read",
		confirmed, r.last, r.limit)
}

// send reports confirmed, which has been checked, as written, flushed and applied, and asks
// for an answer if ask is set. 0/0 reports nothing: the server only hears that we live.
func (r *reporter) send(now time.Time, confirmed pglogrepl.LSN, ask bool) error {
	r.encode(now, confirmed, ask)
	if _, err := r.conn.Write(r.buf[:]); err != nil {
		return err
	}
	r.last, r.sent = confirmed, now
	return nil
}

// encode builds the message in r.buf.
// https://www.postgresql.org/docs/current/protocol-replication.html, "Standby status update"
func (r *reporter) encode(now time.Time, confirmed pglogrepl.LSN, ask bool) {
	b := r.buf[:0]
	b = append(b, kindCopyData)
	b = binary.BigEndian.AppendUint32(b, statusSize-1)
	b = append(b, 'r')
	for range 3 { // written, flushed, applied
		b = binary.BigEndian.AppendUint64(b, uint64(confirmed))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(now.Sub(postgresEpoch()).Microseconds()))
	if ask {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	_ = b // it fills r.buf exactly
}

// postgresEpoch is what timestamps count from.
func postgresEpoch() time.Time { return time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC) }
