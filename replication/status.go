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

	// limit is the highest position that this session has read: commit ends and keepalives.
	// Nothing above it is reported. The server believes any position: it would give up WAL that
	// it has still to read, and end the stream, and after a reconnect skip what lies below.
	limit pglogrepl.LSN

	confirmed pglogrepl.LSN // that was to be reported last; never decreases
	last      pglogrepl.LSN // reported last
	sent      time.Time     // when

	buf [statusSize]byte
}

// read notes a position that the server has sent.
func (r *reporter) read(lsn pglogrepl.LSN) { r.limit = max(r.limit, lsn) }

// reportable returns how much of confirmed may be reported now: it may be what an earlier session has
// read. If it has gone back, nothing may.
func (r *reporter) reportable(confirmed pglogrepl.LSN) (pglogrepl.LSN, error) {
	if confirmed < r.confirmed {
		return 0, fmt.Errorf("broken invariant: position %s was to be confirmed after %s", confirmed, r.confirmed)
	}
	r.confirmed = confirmed
	return min(confirmed, r.limit), nil
}

// send reports confirmed, which is reportable, as written, flushed and applied, and asks
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
