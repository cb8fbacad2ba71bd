package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// TestMemoryDuringOutage: while the broker accepts connections and drops each at its first message, the window limits what
// Send accepts, and neither memory nor goroutines grow. Then everything is delivered.
func TestMemoryDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var dropped atomic.Int64
		fake := startFake(t, func(published) reaction {
			if down.Load() {
				dropped.Add(1)
				return reaction{hangUp: 320}
			}
			return reaction{}
		})
		cfg := fake.config()
		cfg.WindowBytes, cfg.WindowRecords = 1<<20, 2000
		w := startWriter(t, cfg, sink.WriterConfig{})
		w.send("events/x", 1)
		w.AwaitAcked(1)
		down.Store(true)
		full := errors.New("full")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, full)
		defer cancel()
		for n := uint64(1); ; n++ {
			rec := &sink.Record{Seq: n + 1, Topic: "events/x", Partition: sink.AnyPartition, Key: fmt.Append(nil, n), Value: make([]byte, 1000)}
			if err := w.Writer.Send(ctx, rec); err != nil {
				if !errors.Is(err, full) || n > 2001 {
					t.Fatalf("Send of record %d: %v", n, err)
				}
				w.sent = n
				break
			}
		}
		usage := func() (heap uint64, goroutines int) {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc, runtime.NumGoroutine()
		}
		heap, goroutines := usage()
		before := dropped.Load()
		w.Await("attempts", func() bool { return dropped.Load() > before+2 })
		if h, g := usage(); h > heap+2<<20 || g > goroutines+20 {
			t.Errorf("the heap grew from %d to %d bytes, %d goroutines became %d", heap, h, goroutines, g)
		}
		down.Store(false)
		w.Drain(int(w.sent))
	})
}

// TestFrozenServer: Open and a Writer connect to the second server soon, if the first one accepts connections and does not respond.
func TestFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := startFake(t, func(published) reaction { return reaction{} })
		cfg := fake.config()
		cfg.Servers = append([]string{"frozen:5672"}, cfg.Servers...)
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == fakeAddr {
				return fake.dial(ctx, network, addr)
			}
			near, far := net.Pipe() // a write to it blocks, as nothing reads
			t.Cleanup(func() { _ = far.Close() })
			return near, nil
		}
		start := time.Now()
		w := startWriter(t, cfg, sink.WriterConfig{})
		w.send("events/x", 1)
		w.AwaitAcked(1)
		if took := bubble.Since(start); took > connectTimeout {
			t.Errorf("it took %s", took)
		}
		w.Drain(1)
	})
}

// TestNackingChannel: messages are delivered over another channel, if the broker nacks every message of those that are open, or
// one and does not respond to the others. RabbitMQ does so after it has lost the leader of a quorum queue.
func TestNackingChannel(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]bool{"every message": false, "one message": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testNackingChannel(t, hold) })
		})
	}
}

func testNackingChannel(t *testing.T, hold bool) {
	t.Helper()
	var mu sync.Mutex
	bad := make(map[uint16]bool) // channels of the first connection
	down, failed := false, 0
	var fake *fakeServer
	fake = startFake(t, func(p published) reaction {
		mu.Lock()
		defer mu.Unlock()
		if !down {
			bad[p.channel] = true
		}
		if !down || !bad[p.channel] || fake.connections() > 2 { // the first one is that of Open
			return reaction{}
		}
		failed++
		respond := !hold || failed == 20
		return reaction{nack: respond, hold: !respond}
	})
	w := startWriter(t, fake.config(), sink.WriterConfig{})
	w.send("events/x", 1) // alone
	w.AwaitAcked(1)
	w.send("events/x", 100)
	w.AwaitAcked(101)
	bubble.Sleep(nackingAfter)
	mu.Lock()
	down = true
	mu.Unlock()
	w.send("events/x", 100)
	w.Drain(201)
	if n := w.Sink.Stat().Reconnects; n > 0 != hold {
		t.Errorf("%d reconnects", n)
	}
}
