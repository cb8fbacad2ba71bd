package replication

import (
	"net"
	"syscall"
)

// setReceiveLowWater sets SO_RCVLOWAT. It ignores errors, see [socket.wakeAt].
func setReceiveLowWater(conn net.Conn, bytes int) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
