// Package faultproxy runs toxiproxy between a client and a server. Tests use it to
// close, refuse, stall or partition connections. A Kafka client connects to the
// addresses that brokers advertise, so a broker must advertise the proxy's address:
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

// closeTimeout is the time that toxiproxy has to close a listener.
const closeTimeout = 10 * time.Second

// A Proxy is a toxiproxy. Its methods are safe for concurrent use.
type Proxy struct {
	tb   testing.TB
	port *serverproc.Port // keeps the address while connections are refused

	gates    [stream.NumDirections]*gate
	accepted atomic.Int64

	mu   sync.Mutex // guards toxi and changes of fate
	toxi *toxiproxy.Proxy
	fate atomic.Pointer[fate] // of new connections
}

// Start starts a proxy to target (host:port) and closes it when the test ends. If
// target is empty, the proxy refuses connections until Redirect or Listen. The given
// toxics, in the JSON of toxiproxy's HTTP API, apply to every connection.
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

// add adds a toxic. It must be called before the first connection: when a toxic is
// added, toxiproxy accepts no connection until the peers of the open ones read.
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

// Cut closes every connection. It does not change whether the proxy accepts new ones.
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
	// Stop does not wait for the goroutine of toxiproxy that closes the previous listener.
	for end := time.Now().Add(closeTimeout); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); err = p.toxi.Start() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		p.tb.Error(err)
	}
}

// Listen listens on a free port, makes that port the proxy's target and returns a
// listener that reports the proxy's address. The parameters are those of
// [net.Listen]. Listen ignores the address.
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
