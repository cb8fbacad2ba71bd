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

// errClosedByServer is the error of a connection that the server has closed.
var errClosedByServer = errors.New("closed by the server")

// A network transmits bytes between the relays and their servers.
type network struct {
	seed uint64

	mu        sync.Mutex
	listeners map[string]func(*conn) // by address; called in a new goroutine per connection
	hole      time.Time              // until then Postgres does not respond to connection attempts
	serving   sync.WaitGroup
}

func newNetwork(seed uint64) *network {
	return &network{seed: seed, listeners: make(map[string]func(*conn))}
}

// random returns random numbers that depend on the seed and the purpose.
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

// dig makes attempts to connect to Postgres hang for a while. For Kafka this is not possible: see
// conn.swift.
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

// cross waits until the time hole. If ctx is done first, it returns a timeout error.
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

// A host holds the connections of one process. When the process is killed, its host sends nothing more.
type host struct {
	net *network
	run int // of the relay

	mu      sync.Mutex
	conns   []*conn
	dials   map[string]int // number of dials so far, by address
	blocked []block
	dead    bool
}

// A block delays all data in a part of the network until a point in time.
type block struct {
	to      func(addr string) bool
	in, out bool // directions, as seen from the host
	until   time.Time
}

// everywhere selects all servers.
func everywhere(string) bool { return true }

func isPostgres(addr string) bool { return addr == postgresAddr }

func isBroker(addr string) bool { return addr != postgresAddr }

// block adds a block to the host. If it blocks everything, the servers cannot distinguish this from a
// process that is paused and resumed.
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

// blockedUntil returns the time until which connections to addr are blocked.
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

// dial has the signature of net.Dialer.DialContext.
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

// kill kills the process of the host. Some of the bytes in transit may still arrive, and nothing follows.
// Sometimes Postgres does not notice that the process is gone, and the slot stays active.
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

// leave closes the connections of a process that has exited.
func (h *host) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	for _, c := range h.conns {
		c.Close()
	}
}

// An address is the address of a listener.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// A conn is one end of a connection.
type conn struct {
	name    string // run, address and number: the seed determines it
	in, out *pipe
	remote  address
	run     int        // run of the relay
	rng     *rand.Rand // for random choices of the server; only the goroutine that serves the connection uses it
}

// sorted returns connections ordered by name, so that the order depends only on the seed.
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

// Close closes the connection. Bytes that were written still arrive. Bytes that were not read are discarded.
func (c *conn) Close() error {
	c.out.end(net.ErrClosed)
	c.in.breakOff(net.ErrClosed, syscall.EPIPE)
	return nil
}

// cut closes both ends of the connection. If lossy is true, bytes in transit do not arrive.
func (c *conn) cut(lossy bool) {
	for _, p := range []*pipe{c.in, c.out} {
		if lossy {
			p.breakOff(syscall.ECONNRESET, syscall.ECONNRESET)
		} else {
			p.end(syscall.EPIPE)
		}
	}
}

// freeze delays bytes that are written from now on. Bytes in transit still arrive.
func (c *conn) freeze(d time.Duration) {
	c.in.freeze(d)
	c.out.freeze(d)
}

// frozen reports whether bytes that are written now arrive late.
func (c *conn) frozen() bool {
	for _, p := range []*pipe{c.in, c.out} {
		p.mu.Lock()
		until := p.last
		p.mu.Unlock()
		if time.Until(until) > time.Second {
			return true
		}
	}
	return false
}

// swift turns the latency of the connection off or on again. During the handshake, a sarama client
// holds a mutex that other goroutines wait for. While a goroutine waits for a mutex, virtual time does
// not advance.
func (c *conn) swift(on bool) {
	for _, p := range []*pipe{c.in, c.out} {
		p.mu.Lock()
		p.swift = on
		p.mu.Unlock()
	}
}

// A turn is a mutex that a goroutine may hold while virtual time advances. While a goroutine waits
// for a sync.Mutex, virtual time does not advance.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) give() { <-t }
