package cutproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const dialTimeout = 5 * time.Second

// A Direction is one of the two in which bytes flow.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// A Proxy passes on what it gets, unless told otherwise. Its methods may be
// called from any goroutine.
type Proxy struct {
	port *serverproc.Port // keeps the address while connections are refused
	wg   sync.WaitGroup   // every goroutine of the proxy

	mu       sync.Mutex
	changed  *sync.Cond   // held, or a link's cut, has changed
	target   string       // host:port for new connections; "" resets them
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	accepted int
	held     [2]bool
	limits   [2]*limit // nil: none
	slowness Slowness
	closed   bool // no link is made any more
}

// A limit is a CutAfter that has not happened yet.
type limit struct {
	left int64
	done chan struct{}
}

// Start starts a proxy to target, host:port, that is closed when the test
// ends. An empty target resets connections until Redirect.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	port, err := serverproc.ReservePort()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{port: port, target: target, links: make(map[*link]struct{})}
	p.changed = sync.NewCond(&p.mu)
	if err := p.Accept(); err != nil {
		port.Close()
		tb.Fatal(err)
	}
	tb.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.Refuse()
	p.mu.Lock()
	p.closed = true
	p.cut()
	p.mu.Unlock()
	p.wg.Wait()
	p.port.Close()
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Redirect makes target, host:port, the server of new connections.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections returns how many connections are open, and how many there have
// ever been.
func (p *Proxy) Connections() (open, ever int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links), p.accepted
}

// Cut resets every connection, on both sides. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for l := range p.links {
		l.reset()
		delete(p.links, l)
	}
	p.changed.Broadcast()
}

// CutAfter is a Cut as soon as n more bytes have been passed on in direction
// d, by all connections together: the next byte that arrives triggers it. The
// channel is closed when that has happened. A later CutAfter in the same
// direction replaces an earlier one, whose channel is then never closed.
func (p *Proxy) CutAfter(d Direction, n int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits[d] = &limit{left: n, done: make(chan struct{})}
	return p.limits[d].done
}

// Pause holds bytes back in the given directions, in both if none is given.
// Connections stay, and new ones are accepted.
func (p *Proxy) Pause(ds ...Direction) { p.hold(true, ds) }

// Resume undoes Pause.
func (p *Proxy) Resume(ds ...Direction) { p.hold(false, ds) }

func (p *Proxy) hold(held bool, ds []Direction) {
	if len(ds) == 0 {
		ds = []Direction{ToServer, ToClient}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range ds {
		p.held[d] = held
	}
	p.changed.Broadcast()
}

// Strand makes every open connection half-open, as a network does that has lost
// its way: what either end sends, and its end, never reach the other, and
// nobody is told. New connections are as good as before.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stranded = true
	}
	p.changed.Broadcast()
}

// A Slowness is what a link takes its time for. Its zero value is none.
type Slowness struct {
	// Latency and up to as much as Jitter on top of it is what each piece of at
	// most 32 KiB takes, one after the other: as with a TCP window of that size.
	Latency, Jitter time.Duration
	// BytesPerSecond limits each direction of each connection. Zero: no limit.
	BytesPerSecond int
}

// Slow makes all connections, open and new, as slow as s from now on.
func (p *Proxy) Slow(s Slowness) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowness = s
}

// Refuse stops listening: new connections are refused, open ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept undoes Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", p.Addr()) //nolint:forbidigo // does not block
	if err != nil {
		return fmt.Errorf("accept connections again: %w", err)
	}
	p.listener = listener
	p.wg.Go(func() { p.serve(listener) })
	return nil
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // Refuse
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

// connect joins client with the server and returns when both are closed.
func (p *Proxy) connect(client net.Conn) {
	p.mu.Lock()
	p.accepted++
	target := p.target
	p.mu.Unlock()
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", target) //nolint:forbidigo // bounded by its timeout
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, gone: make(chan struct{})}
	if !p.add(l) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, ToServer, client, server) })
	both.Go(func() { p.pump(l, ToClient, server, client) })
	both.Wait()
	_ = client.Close()
	_ = server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.reset()
		return false
	}
	p.links[l] = struct{}{}
	return true
}
