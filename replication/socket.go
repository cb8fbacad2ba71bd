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

// A socket is the network connection below TLS. With TLS it has a read buffer: the server sends
// every message in a TLS record of its own, and crypto/tls reads little more than one record at
// a time.
type socket struct {
	net.Conn
	buffer *bufio.Reader // nil: no TLS

	onlyBuffered bool // Read fails as at a deadline instead of reading from the network
	lowWater     int  // see wakeAt; 0: never set
}

// Read implements net.Conn. A read that ends at a deadline loses no data.
func (s *socket) Read(p []byte) (int, error) {
	switch {
	case s.onlyBuffered && (s.buffer == nil || s.buffer.Buffered() == 0):
		return 0, os.ErrDeadlineExceeded
	case s.buffer == nil:
		return s.Conn.Read(p)
	}
	return s.buffer.Read(p)
}

// How many bytes have to arrive to wake a waiting reader.
const (
	wakeAtOnce = 1
	// wakeForRow is more than six keepalives and less than the smallest transaction with
	// an event. A server sends a keepalive for every transaction of other tables. Begin has
	// 51 bytes, Commit 56, and an Insert with one byte in each of four columns 62.
	wakeForRow = 140
	// wakeForMany is less than the initial receive buffer of Linux.
	wakeForMany = 64 << 10
)

// wakeAt sets how many bytes have to arrive until the kernel wakes a waiting reader. A read
// returns less if it finds less. It is a hint: on systems without SO_RCVLOWAT, every byte wakes
// the reader.
func (s *socket) wakeAt(bytes int) {
	if s.lowWater != bytes {
		s.lowWater = bytes
		setReceiveLowWater(s.Conn, bytes)
	}
}

// withSockets makes every connection of conn a socket.
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

// socketOf returns the socket of a connection that withSockets has made. If AfterNetConnect has
// wrapped the connection in an unknown type, socketOf wraps that in another socket.
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
	busyRate  = 10 // messages per millisecond
	busyPause = time.Millisecond
	busyTime  = 2 * time.Millisecond // period over which the rate is measured
)

// A pacer detects a high rate of messages. The reader then lets messages collect, with a pause
// between two reads and with [socket.wakeAt]. The server writes every message separately, and
// each write would wake the waiting reader, which costs both sides more than the message
// itself. On two cores this makes a WAL sender about twice as fast. At lower rates, where
// latency matters, the reader does not pause.
type pacer struct {
	busy  bool
	since time.Time // start of the period
	count int       // messages in the period
}

// add counts n messages that were read before now.
func (p *pacer) add(n int, now time.Time) {
	p.count += n
	if d := now.Sub(p.since); d >= busyTime {
		p.busy = time.Duration(p.count)*time.Millisecond >= busyRate*d
		p.since, p.count = now, 0
	}
}
