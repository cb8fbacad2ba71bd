//go:build !linux

package config

import "syscall"

// limitUnacknowledged does nothing: other systems have no such option, and libpq ignores it there too.
func limitUnacknowledged(int) func(network, address string, c syscall.RawConn) error { return nil }
