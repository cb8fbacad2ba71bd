//go:build !linux

package replication

import "net"

// setReceiveLowWater does nothing: on other systems the option has no effect on poll.
func setReceiveLowWater(net.Conn, int) {}
