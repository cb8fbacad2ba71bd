package replication

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A socket is the connection below TLS. There it is read through a buffer: the server makes
// a TLS record of every message, and crypto/tls reads little more than a record at a time.
type socket struct {
	net.Conn
	buffer *bufio.Reader // nil: without TLS

	onlyBuffered bool // Read ends like by a deadline instead of going to the network
	lowWater     int  // see wakeAt; 0: never set
}

// Read ends by a deadline without losing anything.
func (s *socket) Read(p []byte) (int, error) {
	switch {
	case s.onlyBuffered && (s.buffer == nil || s.buffer.Buffered() == 0):
		return 0, os.ErrDeadlineExceeded
	case s.buffer == nil:
		return s.Conn.Read(p)
	}
	return s.buffer.Read(p)
}

// How much has to arrive to wake a waiting reader.
const (
	wakeAtOnce = 1
	// wakeForRow is more than six keepalives, of which a server sends one for every
	// transaction elsewhere, and less than the shortest transaction with an event: Begin
	// has 51 bytes, Commit 56, and an Insert of one byte in each of four columns 62.
	wakeForRow = 140
	// wakeForMany is less than the receive buffer that Linux begins with.
	wakeForMany = 64 << 10
)

// wakeAt lets the system wake a waiting reader only when so much has arrived. Reading finds
// what is there all the same. It is a hint: where it is not available, readers are woken
// for everything.
func (s *socket) wakeAt(bytes int) {
	if s.lowWater != bytes {
		s.lowWater = bytes
		setReceiveLowWater(s.Conn, bytes)
	}
}

// withSockets makes conn's connections sockets.
func withSockets(conn *pgconn.Config) {
	dial := conn.DialFunc
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &socket{Conn: c}, nil
	}
}

// socketOf returns the socket of a connection made withSockets. Above one that is unknown
// to us, AfterNetConnect may put any, comes a socket of its own.
func socketOf(conn net.Conn) (net.Conn, *socket) {
	switch c := conn.(type) {
	case *socket:
		return c, c
	case *tls.Conn:
		if s, ok := c.NetConn().(*socket); ok {
			s.buffer = bufio.NewReaderSize(s.Conn, arenaSize)
			return c, s
		}
	}
	s := &socket{Conn: conn}
	return s, s
}

const (
	busyRate  = 10 // messages a millisecond
	busyPause = time.Millisecond
	busyTime  = 2 * time.Millisecond // over which the rate is measured
)

// A pacer notices that many messages are coming. They are then left to gather, by a pause
// between two reads and by [socket.wakeAt]: the server writes every message on its own,
// and while somebody waits for it each of these writes wakes him up, which takes both
// sides longer than the message itself. On two cores a walsender is about twice as fast
// that way. At rates at which latency matters nothing is left to gather.
type pacer struct {
	busy  bool
	since time.Time // when the count began
	count int
}

// add notes n messages read by now.
func (p *pacer) add(n int, now time.Time) {
	p.count += n
	if d := now.Sub(p.since); d >= busyTime {
		p.busy = time.Duration(p.count)*time.Millisecond >= busyRate*d
		p.since, p.count = now, 0
	}
}
