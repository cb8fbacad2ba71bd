package replication

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// minStatusGap is the minimum time between two status updates. A server that shuts down
// requests a reply again as soon as it has one. Without the gap, that would be a hundred
// thousand status updates per second.
const minStatusGap = 100 * time.Millisecond

// statusSize is the size of a CopyData message with a Standby status update.
const statusSize = headerSize + 1 + 4*8 + 1

// A reporter sends status updates.
type reporter struct {
	conn net.Conn

	// limit is the highest position that this session has read: an end LSN or a keepalive. The
	// reporter confirms nothing above it. Postgres accepts any position: it would remove WAL
	// that it still has to decode and end the stream, and skip rows after a reconnect.
	limit pglogrepl.LSN

	confirmed pglogrepl.LSN // last argument of reportable; never decreases
	sent      time.Time     // time of the last status update

	last atomic.Uint64 // an LSN: last confirmed to Postgres

	buf [statusSize]byte
}

// read records a position that the server has sent.
func (r *reporter) read(lsn pglogrepl.LSN) { r.limit = max(r.limit, lsn) }

// reportable returns the position to confirm to Postgres for confirmed, which may be one that only an
// earlier session has read. It returns an error if confirmed has decreased.
func (r *reporter) reportable(confirmed pglogrepl.LSN) (pglogrepl.LSN, error) {
	if confirmed < r.confirmed {
		return 0, fmt.Errorf("broken invariant: the confirmed position decreased from %s to %s", r.confirmed, confirmed)
	}
	r.confirmed = confirmed
	return min(confirmed, r.limit), nil
}

// send sends a status update with confirmed as write, flush and apply position. ask requests a
// reply. 0/0 confirms nothing; it only shows that we are alive.
func (r *reporter) send(now time.Time, confirmed pglogrepl.LSN, ask bool) error {
	r.encode(now, confirmed, ask)
	if _, err := r.conn.Write(r.buf[:]); err != nil {
		return err
	}
	r.sent = now
	r.last.Store(uint64(confirmed))
	return nil
}

// reported returns the position that was last confirmed to Postgres.
func (r *reporter) reported() pglogrepl.LSN { return pglogrepl.LSN(r.last.Load()) }

// encode writes the message to r.buf.
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

// postgresEpoch returns the time from which Postgres counts timestamps.
func postgresEpoch() time.Time { return time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC) }
