package config

import (
	"errors"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not have on every architecture.
const tcpUserTimeout = 0x12

// limitUnacknowledged returns the Control of a net.Dialer that limits for how long sent data may be unacknowledged
// before the connection is lost, in milliseconds.
func limitUnacknowledged(millis int) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) (err error) {
		if network == "unix" {
			return nil
		}
		controlled := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, millis)
		})
		return errors.Join(controlled, err)
	}
}
