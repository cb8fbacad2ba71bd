package replication

import "time"

const (
	busyRate  = 10 // messages a millisecond
	busyPause = time.Millisecond
	busyTime  = 2 * time.Millisecond // over which the rate is measured
)

// A pacer notices that many messages are coming. They are then left to gather, by a pause
// between two reads and by [socket.wakeAt]: the server writes every message on its own,
// and while somebody waits for it each of these writes wakes him up, which takes both
// sides longer than the message itself. On two cores a walsender is about twice as fast
// that way. At rates at which latency matters nothing is left to gather.
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
