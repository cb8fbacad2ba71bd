package cutproxy

import (
	"context"
	"net"
)

// Listen listens on a free port, makes that the proxy's target and returns a
// listener that gives the proxy's address for its own: a server that tells
// clients where it listens sends them to the proxy. Its parameters are those
// of [net.Listen]; the address is ignored.
func (p *Proxy) Listen(network, _ string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), network, "127.0.0.1:0") //nolint:forbidigo // does not block
	if err != nil {
		return nil, err
	}
	p.Redirect(l.Addr().String())
	return &hidden{Listener: l, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.port.Number()}}, nil
}

type hidden struct {
	net.Listener
	addr net.Addr
}

// Addr returns the address of the proxy.
func (h *hidden) Addr() net.Addr { return h.addr }
