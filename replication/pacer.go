package replication

import "time"

const (
	busyRate  = 10 // messages a millisecond
	busyPause = time.Millisecond
	busyTime  = 2 * time.Millisecond // over which the rate is measured
)

// A pacer lets messages gather while many are coming, by a pause between two reads. The
// server writes each of them on its own, and as long as somebody is waiting for it, every
// such write wakes him up: a cost that on two cores nearly halves the rate of the server.
// A pause of a millisecond makes batches of hundreds instead. At rates at which latency
// matters there is none.
type pacer struct {
	busy  bool
	since time.Time // when the count began
	count int
}

// add notes n messages read by now.
func (p *pacer) add(n int, now time.Time) {
	p.count += n
	if d := now.Sub(p.since); d >= busyTime {
		p.busy = time.Duration(p.count)*time.Millisecond >= busyRate*d
		p.since, p.count = now, 0
	}
}

// pause returns how long to wait before the next read; the last one was at last.
func (p *pacer) pause(now, last time.Time) time.Duration {
	if !p.busy {
		return 0
	}
	return busyPause - now.Sub(last)
}
