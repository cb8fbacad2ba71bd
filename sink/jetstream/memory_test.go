package jetstream

import (
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// While the server is down, a Writer whose window is full takes the same memory, however often it tries to connect.
func TestMemoryWhileServerIsDown(t *testing.T) {
	need.FullRun(t, "it measures for half a minute")
	s := natstest.Start(t)
	stream := s.Stream(t, jetstream.StreamConfig{})
	r := newRig(t, config(s), sink.WriterConfig{})
	r.sendRows(stream, 100, 10)
	r.AwaitAcked(100)
	s.Shutdown()
	sent := make(chan uint64, 1)
	go func() {
		for n := uint64(100); ; {
			row := r.row(stream, string(rune('a'+n%26)))
			row.Value = make([]byte, 500)
			if r.Writer.Send(t.Context(), row) != nil {
				sent <- n
				return
			}
			n++
		}
	}()
	measure := func() (heap uint64, goroutines int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	before := uint64(0)
	r.Await("a full window", func() bool {
		last := before
		before = uint64(r.Sink.Stat().InFlightRecords)
		return before > 0 && before == last
	})
	retries := r.Sink.Stat().Retries
	heap, goroutines := measure()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(time.Second) {
		now, running := measure()
		if now > heap+(2<<20) || running > goroutines+5 {
			t.Fatalf("%d bytes and %d goroutines, were %d and %d", now, running, heap, goroutines)
		}
	}
	t.Logf("%d bytes for %d records in flight, %d retries", heap, before, r.Sink.Stat().Retries-retries)
	s.Restart(t)
	r.Await("all records", func() bool { return r.Acked() > int(before) })
	r.Stop(nil)
	<-sent
}
