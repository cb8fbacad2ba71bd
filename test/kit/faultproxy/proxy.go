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
	port   *serverproc.Port // keeps the address while connections are refused
	failed func(error)      // gets errors of methods that return none

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
	p, err := Launch(tb.Name(), target, func(err error) { tb.Error(err) }, toxicsJSON...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Launch is Start for a program. The caller must call Close. Methods of the proxy that return no error pass it to failed,
// which may be called from any goroutine.
func Launch(name, target string, failed func(error), toxicsJSON ...string) (*Proxy, error) {
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, err
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{failed: failed, port: port, toxi: toxiproxy.NewProxy(server, name, port.Addr(), target)}
	p.fate.Store(newFate())
	if err := p.addAll(toxicsJSON); err != nil {
		p.Close()
		return nil, err
	}
	if target != "" {
		p.Accept()
	}
	return p, nil
}

// Close closes the proxy and every connection.
func (p *Proxy) Close() {
	p.Refuse()
	p.port.Close()
}

// addAll adds the given toxics and the gates. It must be called before the first connection: when a toxic is
// added, toxiproxy accepts no connection until the peers of the open ones read.
func (p *Proxy) addAll(toxicsJSON []string) error {
	for _, toxic := range toxicsJSON {
		if _, err := p.toxi.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}
	toxics.Register("gate", new(gate))
	for d := range stream.NumDirections {
		wrapper, err := p.toxi.Toxics.AddToxicJson(strings.NewReader(`{"type": "gate", "stream": "` + d.String() + `"}`))
		if err != nil {
			return err
		}
		g, _ := wrapper.Toxic.(*gate)
		g.proxy, p.gates[d] = p, g
	}
	return nil
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Target returns the host and port to which the proxy forwards new connections.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toxi.Upstream
}

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
		p.failed(err)
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
