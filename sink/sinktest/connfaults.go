package sinktest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// ConnFaults makes network connections, and injects faults into them. At most one fault is present at a time.
type ConnFaults struct {
	// IsWrite reports whether b, which the client passes to one call of Write, begins a request with records.
	IsWrite func(b []byte) bool

	// IsResponse reports whether b, which one call of Read has returned, has a response to such a request. Nil: what is
	// read next after the request has.
	IsResponse func(b []byte) bool

	mu    sync.Mutex
	fault *connFault // nil if connections work
}

// Cut is a fault that closes a connection after the first half of a request.
func (c *ConnFaults) Cut() Fault {
	f := c.during("connections break in a request", func() *connFault { return &connFault{cut: true} })
	f.Breaks = true
	return f
}

// Lose is a fault that closes a connection instead of delivering the response.
func (c *ConnFaults) Lose() Fault {
	f := c.during("connections break before the response", func() *connFault { return &connFault{lose: true} })
	f.Breaks = true
	return f
}

// Hold is a fault during which responses do not arrive.
func (c *ConnFaults) Hold() Fault {
	return c.during("responses are withheld", func() *connFault { return &connFault{hold: make(chan struct{})} })
}

// Drop is a fault that loses responses, while connections go on.
func (c *ConnFaults) Drop() Fault {
	return c.during("responses are lost", func() *connFault { return &connFault{drop: true} })
}

// Refused is a fault without an effect of its own, which is met when a connection cannot be made.
func (c *ConnFaults) Refused(name string) Fault {
	return c.during(name, func() *connFault { return &connFault{refused: true} })
}

// Alter is a fault that passes everything the client reads to change, which reports whether it has changed a response.
func (c *ConnFaults) Alter(name string, change func(b []byte) bool) Fault {
	return c.during(name, func() *connFault { return &connFault{change: change} })
}

// during returns the fault that begin returns.
func (c *ConnFaults) during(name string, begin func() *connFault) Fault {
	return Fault{Name: name, Begin: func(*testing.T) (<-chan struct{}, func()) {
		f := begin()
		f.met = make(chan struct{})
		c.set(f)
		return f.met, sync.OnceFunc(func() {
			c.set(nil)
			if f.hold != nil {
				close(f.hold)
			}
		})
	}}
}

func (c *ConnFaults) set(f *connFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

func (c *ConnFaults) present() *connFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// Dial is like net.Dialer.DialContext. Faults affect the connection that it returns.
func (c *ConnFaults) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		if f := c.present(); f != nil && f.refused {
			f.meet()
		}
		return nil, err
	}
	return &faultyConn{Conn: conn, faults: c, closed: make(chan struct{})}, nil
}

// A connFault is a fault of connections. One field is set, besides met and once.
type connFault struct {
	cut, lose, drop, refused bool

	hold   chan struct{} // closed when responses may pass
	change func(b []byte) bool

	met  chan struct{}
	once sync.Once
}

func (f *connFault) meet() { f.once.Do(func() { close(f.met) }) }

// A faultyConn is a connection that faults affect.
type faultyConn struct {
	net.Conn

	faults *ConnFaults
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	wrote bool // nothing was read since the last request with records
}

var errStruck = errors.New("struck by a fault")

// Write implements [net.Conn].
func (c *faultyConn) Write(b []byte) (int, error) {
	if !c.faults.IsWrite(b) {
		return c.Conn.Write(b)
	}
	if f := c.faults.present(); f != nil && f.cut {
		_, _ = c.Conn.Write(b[:len(b)/2])
		return 0, c.strike(f)
	}
	c.mu.Lock()
	c.wrote = true
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Read implements [net.Conn].
func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	isResponse := err == nil && c.isResponse(b[:n])
	f := c.faults.present()
	switch {
	case err != nil || f == nil:
	case f.change != nil:
		if f.change(b[:n]) {
			f.meet()
		}
	case !isResponse:
	case f.lose:
		return 0, c.strike(f)
	case f.drop:
		f.meet()
		return c.Read(b)
	case f.hold != nil:
		f.meet()
		select {
		case <-f.hold:
		case <-c.closed:
			return 0, errStruck
		}
	}
	return n, err
}

func (c *faultyConn) isResponse(b []byte) bool {
	if c.faults.IsResponse != nil {
		return c.faults.IsResponse(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wrote := c.wrote
	c.wrote = false
	return wrote
}

// strike closes the connection because of f.
func (c *faultyConn) strike(f *connFault) error {
	_ = c.Close()
	f.meet()
	return errStruck
}

// Close implements [net.Conn].
func (c *faultyConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
