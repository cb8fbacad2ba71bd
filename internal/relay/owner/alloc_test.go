package owner

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// maxAllocs is the highest accepted number of allocations per record. It counts the whole process: reading,
// publishing, sending, and the in-process broker.
const maxAllocs = 1

// brokerDelay is the time that the broker takes to respond. Meanwhile, further records accumulate.
const brokerDelay = 2 * time.Millisecond

// TestRelayAllocatesAtMostOnceARecord runs a whole relay in steady state, from the bytes of a socket to the
// broker's responses.
func TestRelayAllocatesAtMostOnceARecord(t *testing.T) {
	for _, rows := range []int{1, 10, 1000} {
		for _, payload := range []int{200, 1000} {
			t.Run(fmt.Sprintf("rows=%d/payload=%d", rows, payload), func(t *testing.T) {
				l, server := newLoad(rows, payload), &loadServer{batches: make(chan *loadBatch)}
				s := newTestSession(t, openStream(t, server), discardingSink(t, brokerDelay).NewWriter(sink.WriterConfig{}), 0)
				ended := make(chan error, 1)
				go func() { ended <- s.run(t.Context()) }()
				relay := func(batches int) (rows int) {
					for range batches {
						batch := l.nextBatch()
						select {
						case server.batches <- batch:
							rows += batch.rows
						case err := <-ended:
							t.Fatalf("session ended with %v", err)
						}
					}
					for s.tracker.Confirmed() != l.end {
						select {
						case <-time.After(time.Millisecond):
						case err := <-ended:
							t.Fatalf("session ended with %v", err)
						}
					}
					return rows
				}

				relay(40) // let buffers grow to their final size
				before := mallocs()
				n := relay(40)
				perRow := float64(mallocs()-before) / float64(n)
				t.Logf("%.3f allocations a record", perRow)
				if perRow > maxAllocs {
					t.Errorf("%.3f allocations a record, want at most %d", perRow, maxAllocs)
				}
				close(server.batches)
				if err := <-ended; !errors.Is(err, replication.ErrUnreachable) {
					t.Errorf("session ended with %v", err)
				}
			})
		}
	}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
