package serverproc

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// A Port is a TCP port of 127.0.0.1, chosen by the kernel, that nobody else
// gets until Close: neither a listener on port 0 nor an outgoing connection,
// not even one to the port itself, which Linux otherwise connects to itself
// while nothing listens. A server that sets SO_REUSEADDR, as Postgres and the
// JVM do, can listen on it any number of times.
type Port struct {
	fd     int // bound, never listening
	number int
}

// ReservePort picks a free port.
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

// Close gives the port back.
func (p *Port) Close() { _ = syscall.Close(p.fd) }
