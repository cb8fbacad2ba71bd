package pump

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

// WALBytes counts the WAL that was read, and not what lies before the first position or between two ownerships.
func TestWALBytes(t *testing.T) {
	var p Progress
	for _, step := range []struct {
		starts     bool // an ownership, at the position
		read       pglogrepl.LSN
		bytes, end uint64
	}{
		{starts: true, read: 0},
		{read: 5000, end: 5000},
		{read: 5100, bytes: 100, end: 5100},
		{read: 0, bytes: 100, end: 5100}, // a batch without a position
		{starts: true, read: 9000, bytes: 100, end: 9000},
		{read: 9040, bytes: 140, end: 9040},
		{starts: true, read: 4000, bytes: 140, end: 4000}, // on another timeline
		{read: 4002, bytes: 142, end: 4002},
	} {
		if step.starts {
			p.StartOwnership(step.read)
		} else {
			p.Add(&Counts{Received: step.read, Rows: 1})
		}
		if got := p.Counts(); got.WALBytes != step.bytes || uint64(got.Received) != step.end {
			t.Errorf("after %+v: %d bytes, received %d", step, got.WALBytes, got.Received)
		}
	}
}
