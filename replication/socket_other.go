//go:build !linux

package replication

import "net"

// setReceiveLowWater does nothing: elsewhere the option does not keep a poller asleep.
func setReceiveLowWater(net.Conn, int) {}
