package checkpoint

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// trackLimit: 1.2 was measured.
const trackLimit = 2

// TestGate compares a transaction of ten records, acknowledged together, with a counter that
// is locked as often.
func TestGate(t *testing.T) {
	const rows = 10
	tracker := New(0, nil)
	var end pglogrepl.LSN
	seqs := make([]Seq, rows)
	var mu sync.Mutex
	count := 0
	ratio.Gate(t, trackLimit,
		func() {
			tracker.Begin(end, time.Time{})
			for i := range seqs {
				seqs[i] = tracker.Next()
			}
			end += 64
			tracker.Commit(end)
			mustAck(t, tracker, seqs...)
		},
		func() {
			for range rows + 3 { // Begin, Commit, Ack
				mu.Lock()
				count++
				mu.Unlock()
			}
		})
}
