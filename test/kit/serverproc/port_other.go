//go:build !linux

package serverproc

import (
	"fmt"
	"net"
	"strconv"
)

// A Port is a TCP port of 127.0.0.1 that was free when the kernel chose it.
// Only on Linux does it stay reserved while the server is down.
type Port struct{ number int }

// ReservePort returns a free port.
func ReservePort() (*Port, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listener's address is a %T", l.Addr())
	}
	return &Port{number: addr.Port}, nil
}

// Number returns the port number.
func (p *Port) Number() int { return p.number }

// Addr returns 127.0.0.1:port.
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Close does nothing.
func (p *Port) Close() {}
