package cutproxy

import (
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// A link is a pair of connections.
type link struct {
	client, server net.Conn
	gone           chan struct{} // closed by reset

	// These are guarded by Proxy.mu.
	cut      bool
	stranded bool // what comes is thrown away, and neither end hears of the other
}

// reset is called once.
func (l *link) reset() {
	l.cut = true
	close(l.gone)
	reset(l.client)
	reset(l.server)
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Close then sends RST, not FIN
	}
	_ = c.Close()
}

// pump copies one direction of l until its source ends or l is cut.
func (p *Proxy) pump(l *link, d Direction, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(l, d, buf[:n], to) {
			reset(from)
			return
		}
		switch tcp, ok := to.(*net.TCPConn); {
		case err == nil:
		case p.isStranded(l):
			return
		case ok && err == io.EOF: //nolint:errorlint // a Conn returns it bare
			_ = tcp.CloseWrite()
			return
		default:
			reset(to)
			return
		}
	}
}

// pass writes data, as far as it may be written, and reports whether the link
// lives on.
func (p *Proxy) pass(l *link, d Direction, data []byte, to net.Conn) bool {
	p.delay(l, len(data))
	p.mu.Lock()
	for p.held[d] && !l.cut && !l.stranded {
		p.changed.Wait()
	}
	if l.cut || l.stranded {
		defer p.mu.Unlock()
		return !l.cut
	}
	limit := p.limits[d]
	if limit == nil || int64(len(data)) <= limit.left {
		if limit != nil {
			limit.left -= int64(len(data))
		}
		p.mu.Unlock()
		_, err := to.Write(data)
		return err == nil
	}
	defer p.mu.Unlock() // everybody waits for the cut, and the cut for the write
	if limit.left > 0 {
		_ = to.SetWriteDeadline(time.Now().Add(dialTimeout)) // a peer may have stopped reading
		_, _ = to.Write(data[:limit.left])
	}
	p.limits[d] = nil
	p.cut()
	close(limit.done)
	return false
}

func (p *Proxy) isStranded(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.stranded
}

// delay lets n bytes of l take the time that a slow link takes for them.
func (p *Proxy) delay(l *link, n int) {
	p.mu.Lock()
	s := p.slowness
	p.mu.Unlock()
	d := s.Latency
	if s.Jitter > 0 {
		d += rand.N(s.Jitter)
	}
	if s.BytesPerSecond > 0 {
		d += time.Duration(n) * time.Second / time.Duration(s.BytesPerSecond)
	}
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.gone:
	}
}
