package faultproxy

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A gate is the toxic that implements CutAfter, Partition and Stall for one
// direction of all connections. Toxiproxy's limit_data and timeout work on each
// connection separately, and forward the end of a connection to the other peer.
type gate struct {
	proxy *Proxy
	limit atomic.Pointer[limit] // nil: none
	stall atomic.Pointer[stall] // nil: none
}

// A stall holds back data.
type stall struct{ over chan struct{} }

// A limit is a CutAfter whose Cut has not happened yet.
type limit struct {
	remaining atomic.Int64 // below zero once it is reached
	done      chan struct{}
}

// A fate is the state that a group of connections shares. The proxy cancels closed
// when it closes the connections. It cancels lost then too, or at a Partition.
type fate struct {
	closed, lost context.Context //nolint:containedctx // the life of connections
	close, lose  context.CancelFunc
}

func newFate() *fate {
	f := &fate{}
	f.closed, f.close = context.WithCancel(context.Background())
	f.lost, f.lose = context.WithCancel(f.closed)
	return f
}

// CutAfter calls Cut when all connections together have forwarded n more bytes in
// direction d and the next byte arrives. The returned channel is closed after the
// Cut. A later CutAfter in the same direction replaces an earlier one, whose channel
// is then never closed.
func (p *Proxy) CutAfter(d stream.Direction, n int64) <-chan struct{} {
	l := &limit{done: make(chan struct{})}
	l.remaining.Store(n)
	p.gates[d].limit.Store(l)
	return l.done
}

// Partition makes all connections half-open, including those accepted before Heal:
// neither data nor the end of the connection reaches the other peer. It lasts until
// the proxy closes the connections.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate.Load().lose()
}

// Heal makes new connections work again. Half-open connections remain half-open.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := *p.fate.Load()
	if f.lost.Err() != nil {
		f.lost, f.lose = context.WithCancel(f.closed)
		p.fate.Store(&f)
	}
}

// Stall delays the data of all connections in the given directions, both if none is given, like a
// network that loses packets, until release is called. release must be called before the next Stall.
func (p *Proxy) Stall(ways ...stream.Direction) (release func()) {
	if len(ways) == 0 {
		ways = []stream.Direction{stream.Upstream, stream.Downstream}
	}
	s := &stall{over: make(chan struct{})}
	for _, d := range ways {
		p.gates[d].stall.Store(s)
	}
	return sync.OnceFunc(func() {
		for _, d := range ways {
			p.gates[d].stall.Store(nil)
		}
		close(s.over)
	})
}

// await blocks while the direction is stalled and the connection is neither closed nor partitioned.
func (g *gate) await(f *fate) {
	if s := g.stall.Load(); s != nil {
		select {
		case <-s.over:
		case <-f.lost.Done():
		}
	}
}

// NewState returns the fate of a new connection.
func (g *gate) NewState() any {
	if g == g.proxy.gates[stream.Downstream] { // the second of the connection's two
		g.proxy.accepted.Add(1)
	}
	return g.proxy.fate.Load()
}

// Pipe forwards one direction of a connection. It receives everything that
// toxiproxy has read even when it forwards nothing, because toxiproxy's reader
// blocks otherwise.
func (g *gate) Pipe(stub *toxics.ToxicStub) {
	defer stub.Close()
	f, _ := stub.State.(*fate)
	send := func(c *stream.StreamChunk) {
		select {
		case stub.Output <- c:
		case <-f.lost.Done():
		}
	}
	for c := range stub.Input {
		g.await(f)
		if f.lost.Err() != nil {
			continue
		}
		reached := g.shorten(c)
		send(c)
		if reached != nil {
			send(&stream.StreamChunk{}) // toxiproxy receives it after it has written c
			g.proxy.Cut()
			g.limit.CompareAndSwap(reached, nil)
			close(reached.done)
		}
	}
	g.await(f) // a stall delays the end of the stream too
	if f.lost.Err() != nil {
		<-f.closed.Done()
	}
}

// shorten truncates c to the bytes that the limit still allows. It returns the limit if c reaches it.
func (g *gate) shorten(c *stream.StreamChunk) (reached *limit) {
	l := g.limit.Load()
	if l == nil {
		return nil
	}
	n := int64(len(c.Data))
	left := l.remaining.Add(-n)
	if left >= 0 {
		return nil
	}
	c.Data = c.Data[:max(0, n+left)]
	if n+left < 0 {
		return nil // another connection has reached it
	}
	return l
}
