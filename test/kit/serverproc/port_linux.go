package serverproc

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// A Port is a TCP port of 127.0.0.1, chosen by the kernel and reserved until
// Close. The kernel assigns it neither to a listener on port 0 nor to an outgoing
// connection. This matters for a client that dials the port while no server
// listens: otherwise Linux could connect the client to itself. A server that sets
// SO_REUSEADDR, as Postgres and the JVM do, can listen on the port repeatedly.
type Port struct {
	fd     int // a socket that is bound to the port and never listens
	number int
}

// ReservePort reserves a free port.
func ReservePort() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &Port{fd: fd}
	if err := p.bind(); err != nil {
		p.Close()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *Port) bind() error {
	if err := syscall.SetsockoptInt(p.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := syscall.Bind(p.fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	sa, err := syscall.Getsockname(p.fd)
	if err != nil {
		return err
	}
	in4, ok := sa.(*syscall.SockaddrInet4)
	if !ok {
		return fmt.Errorf("socket name is a %T", sa)
	}
	p.number = in4.Port
	return nil
}

// Number returns the port number.
func (p *Port) Number() int { return p.number }

// Addr returns 127.0.0.1:port.
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Close releases the port.
func (p *Port) Close() { _ = syscall.Close(p.fd) }
