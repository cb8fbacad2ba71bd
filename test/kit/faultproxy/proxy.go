// Package faultproxy runs toxiproxy between a client and a server, for tests in
// which connections are closed, refused, stalled or lost. As a Kafka client uses the
// addresses that brokers advertise, a broker must advertise the proxy's address:
//
//	p := faultproxy.Start(t, "")
//	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(p.Listen))
package faultproxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// closeTimeout is how long a listener may take to be closed.
const closeTimeout = 10 * time.Second

// A Proxy is a toxiproxy. Its methods are safe for concurrent use.
type Proxy struct {
	tb   testing.TB
	port *serverproc.Port // keeps the address while connections are refused

	gates    [stream.NumDirections]*gate
	accepted atomic.Int64

	mu   sync.Mutex // guards toxi, and is held to change fate
	toxi *toxiproxy.Proxy
	fate atomic.Pointer[fate] // of new connections
}

// Start starts a proxy to target, host:port, and closes it when the test ends.
// If target is empty, the proxy refuses connections until Redirect or Listen.
// Connections have the given toxics, each in the JSON of toxiproxy's HTTP API.
func Start(tb testing.TB, target string, toxicsJSON ...string) *Proxy {
	tb.Helper()
	port, err := serverproc.ReservePort()
	if err != nil {
		tb.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{tb: tb, port: port, toxi: toxiproxy.NewProxy(server, tb.Name(), port.Addr(), target)}
	p.fate.Store(newFate())
	for _, toxic := range toxicsJSON {
		p.add(toxic)
	}
	toxics.Register("gate", new(gate))
	for d := range stream.NumDirections {
		g, _ := p.add(`{"type": "gate", "stream": "` + d.String() + `"}`).(*gate)
		g.proxy, p.gates[d] = p, g
	}
	tb.Cleanup(func() {
		p.Refuse()
		port.Close()
	})
	if target != "" {
		p.Accept()
	}
	return p
}

// add adds a toxic before there are connections: toxiproxy waits for the peers of
// open ones to read, and accepts no other until they do.
func (p *Proxy) add(json string) toxics.Toxic {
	p.tb.Helper()
	wrapper, err := p.toxi.Toxics.AddToxicJson(strings.NewReader(json))
	if err != nil {
		p.tb.Fatal(err)
	}
	return wrapper.Toxic
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Accepted returns how many connections the proxy has accepted so far.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Refuse closes every connection and refuses new ones.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

// Accept undoes Refuse.
func (p *Proxy) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start()
}

// Cut closes every connection. New ones are accepted, if they were before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.toxi.Enabled {
		p.stop()
		p.start()
	}
}

// Redirect closes every connection and forwards new ones to target, host:port.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	p.toxi.Upstream = target
	p.start()
}

func (p *Proxy) stop() {
	p.toxi.Stop()
	p.fate.Swap(newFate()).close()
}

func (p *Proxy) start() {
	if p.toxi.Enabled {
		return
	}
	err := p.toxi.Start()
	// A goroutine of toxiproxy for which Stop does not wait closes the listener of before.
	for end := time.Now().Add(closeTimeout); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); err = p.toxi.Start() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		p.tb.Error(err)
	}
}

// Listen listens on a free port, makes that the proxy's target and returns a
// listener with the proxy's address. Its parameters are those of [net.Listen];
// the address is ignored.
func (p *Proxy) Listen(network, _ string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.Redirect(l.Addr().String())
	return &advertised{l, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.port.Number()}}, nil
}

type advertised struct {
	net.Listener
	proxy net.Addr
}

func (a *advertised) Addr() net.Addr { return a.proxy }
