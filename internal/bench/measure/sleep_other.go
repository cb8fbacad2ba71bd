//go:build !linux

package measure

import "time"

// sleepExactly blocks for d, as exactly as the runtime's timers are.
func sleepExactly(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
