package relay

import (
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// publishLimit: 7 was measured.
const publishLimit = 11

// TestGate compares decoding, routing and tracking a batch with copying it and taking a lock
// for every message.
func TestGate(t *testing.T) {
	l, acker := newLoad(10, 200), new(acker)
	s := sessionOf(t, nil, acker, 0, cut{})
	acker.ack = s.ack
	var mu sync.Mutex
	copied := 0
	var dst []byte
	ratio.Gate(t, publishLimit,
		func() {
			if _, err := s.publication.batch(t.Context(), nil, &l.next().Batch); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			b := &l.ring[copied%ringSize]
			dst = append(dst[:0], b.wire...)
			for range b.Messages {
				mu.Lock()
				mu.Unlock() //nolint:staticcheck // nothing is guarded: the lock is what is measured
			}
			copied++
		})
}
