package twin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// errClosedByServer is what the server gets from a connection it has given up.
var errClosedByServer = errors.New("closed by the server")

// A network carries bytes between the relay and its servers.
type network struct {
	seed uint64

	mu        sync.Mutex
	listeners map[string]func(*conn) // by address; each gets a goroutine per connection
	hole      time.Time              // until then nobody hears from the server at all
	serving   sync.WaitGroup
}

func newNetwork(seed uint64) *network {
	return &network{seed: seed, listeners: make(map[string]func(*conn))}
}

// random returns random numbers that depend on the seed and on what they are for.
func (n *network) random(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(n.seed, h.Sum64()))
}

func (n *network) listen(addr string, serve func(*conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = serve
}

func (n *network) unlisten(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.listeners, addr)
}

// dig has connections to Postgres not even refused for a while. For those to Kafka it cannot
// be done, see conn.swift.
func (n *network) dig(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hole = time.Now().Add(d)
}

func (n *network) holeUntil() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hole
}

// cross waits until there is no hole any more.
func cross(ctx context.Context, hole time.Time) error {
	d := time.Until(hole)
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
}

// A host is where one process runs: when that is killed, nothing of it reaches anybody.
type host struct {
	net *network
	run int // of the relay

	mu      sync.Mutex
	conns   []*conn
	dials   map[string]int // so far, by address
	blocked []block
	dead    bool
}

// A block is a part of the network that carries nothing for a while, and then what was sent meanwhile.
type block struct {
	to      func(addr string) bool
	in, out bool // which directions, as the host sees them
	until   time.Time
}

// everywhere is to all servers.
func everywhere(string) bool { return true }

func isPostgres(addr string) bool { return addr == postgresAddr }

func isKafka(addr string) bool { return addr != postgresAddr }

// block cuts the host off. With everything blocked, for the servers it is a process that is stopped
// and then goes on, without knowing that it was.
func (h *host) block(b block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blocked = append(h.blocked, b)
	for _, c := range h.conns {
		if !b.to(string(c.remote)) {
			continue
		}
		if b.in {
			c.in.freeze(time.Until(b.until))
		}
		if b.out {
			c.out.freeze(time.Until(b.until))
		}
	}
}

// blockedUntil returns until when addr cannot be dialled.
func (h *host) blockedUntil(addr string) (until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.blocked {
		if b.to(addr) && b.until.After(until) {
			until = b.until
		}
	}
	return until
}

func newHost(n *network, run int) *host {
	return &host{net: n, run: run, dials: make(map[string]int)}
}

// dial has the shape of net.Dialer.DialContext.
func (h *host) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	blocked := h.blockedUntil(addr)
	if addr == postgresAddr {
		for _, hole := range []time.Time{blocked, h.net.holeUntil()} {
			if err := cross(ctx, hole); err != nil {
				return nil, err
			}
		}
	} else if time.Now().Before(blocked) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	}
	h.net.mu.Lock()
	serve := h.net.listeners[addr]
	h.net.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials[addr]++
	name := fmt.Sprintf("%04d %s %06d", h.run, addr, h.dials[addr])
	if serve == nil || h.dead {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	limit := pipeSize
	if addr != postgresAddr {
		limit = pipeSizeKafka
	}
	to, from := newPipe(h.net.random(name+" to"), limit), newPipe(h.net.random(name+" from"), limit)
	client := &conn{name: name, in: from, out: to, remote: address(addr), run: h.run}
	server := &conn{name: name, in: to, out: from, remote: "relay", run: h.run, rng: h.net.random(name)}
	client.swift(addr != postgresAddr)
	h.conns = append(h.conns, client)
	h.net.serving.Go(func() {
		serve(server)
		server.Close()
	})
	return client, nil
}

// kill ends the host: of what is on its way some may still arrive, nothing follows. Sometimes its end
// does not show, and Postgres goes on holding the slot for it.
func (h *host) kill(rng *rand.Rand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	vanishes := rng.IntN(3) == 0
	for _, c := range sorted(h.conns) {
		lossy := rng.IntN(2) == 0
		if vanishes && c.remote == postgresAddr {
			c.freeze(time.Hour)
		} else {
			c.cut(lossy)
		}
	}
}

// leave is the end of a process that has ended by itself: its connections are closed for it.
func (h *host) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	for _, c := range h.conns {
		c.cut(false)
	}
}

// An address is that of a listener.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// A conn is one end of a connection.
type conn struct {
	name    string // run, address and number: the same whenever the seed is
	in, out *pipe
	remote  address
	run     int        // of the relay that it belongs to
	rng     *rand.Rand // for what the server decides; belongs to who serves it
}

// sorted returns connections in an order that does not depend on who was first.
func sorted(conns []*conn) []*conn {
	return slices.SortedFunc(slices.Values(conns), func(a, b *conn) int { return cmp.Compare(a.name, b.name) })
}

func (c *conn) Read(b []byte) (int, error)         { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error)        { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr                { return address("local") }
func (c *conn) RemoteAddr() net.Addr               { return c.remote }
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(&c.in.readBy, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setDeadline(&c.out.writeBy, t); return nil }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// Close lets what was written arrive, and throws away what was not read.
func (c *conn) Close() error {
	c.out.end(net.ErrClosed)
	c.in.breakOff(net.ErrClosed, syscall.EPIPE)
	return nil
}

// cut breaks the connection. If lossy, what is on its way does not arrive.
func (c *conn) cut(lossy bool) {
	for _, p := range []*pipe{c.in, c.out} {
		if lossy {
			p.breakOff(syscall.ECONNRESET, syscall.ECONNRESET)
		} else {
			p.end(syscall.EPIPE)
		}
	}
}

// freeze has nothing arrive for a while that is not on its way yet.
func (c *conn) freeze(d time.Duration) {
	c.in.freeze(d)
	c.out.freeze(d)
}

// swift has everything arrive at once, or not any more. While a client of sarama's shakes
// hands it holds a mutex that others wait for, and while somebody waits for a mutex virtual
// time stands still.
func (c *conn) swift(on bool) {
	for _, p := range []*pipe{c.in, c.out} {
		p.mu.Lock()
		p.swift = on
		p.mu.Unlock()
	}
}

// A turn is a mutex that may be held for some time: while somebody waits for a sync.Mutex,
// virtual time stands still.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) give() { <-t }
