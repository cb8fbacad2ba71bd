package measure

import (
	"syscall"
	"time"
)

// sleepExactly blocks the thread for d, to some 50 µs.
func sleepExactly(d time.Duration) {
	if d <= 0 {
		return
	}
	left := syscall.NsecToTimespec(d.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR { // the runtime's signals
	}
}
