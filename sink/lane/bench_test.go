package lane

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A nullTransport acknowledges every request in another goroutine.
type nullTransport struct {
	requests chan *Request
	ended    sync.WaitGroup
}

func newNullTransport() *nullTransport {
	t := &nullTransport{requests: make(chan *Request, 1<<16)}
	t.ended.Go(func() {
		for r := range t.requests {
			r.Done(len(r.Records), nil)
		}
	})
	return t
}

func (t *nullTransport) Publish(_ context.Context, requests []*Request) {
	for _, r := range requests {
		t.requests <- r
	}
}

func (t *nullTransport) Close() error {
	close(t.requests)
	t.ended.Wait()
	return nil
}

// BenchmarkWriter sends records of 300 bytes to a Transport that does nothing.
func BenchmarkWriter(b *testing.B) {
	for _, bench := range []struct {
		name string
		keys int
		o    Options
	}{
		{"one key", 1, Options{}},
		{"one key, 50 a request", 1, Options{RequestRecords: 50}},
		{"1000 keys", 1000, Options{}},
		{"1000000 keys", 1_000_000, Options{}},
		{"no key", 0, Options{}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := NewBase(bench.o, slog.New(slog.DiscardHandler)).NewWriterOver(newNullTransport(), sink.WriterConfig{Fence: func() error { return nil }})
			ended := make(chan error, 1)
			go func() { ended <- w.Run(context.Background(), func([]uint64, error) {}) }()
			r := sink.Record{
				Topic: "orders", Value: make([]byte, 250), Timestamp: time.Now(),
				Headers: []sink.Header{{Key: "id", Value: make([]byte, 16)}, {Key: "type", Value: []byte("OrderPlaced")}},
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r.Seq = uint64(i + 1)
				if bench.keys > 0 {
					r.Key = strconv.AppendInt(r.Key[:0], int64(i%bench.keys), 10)
				}
				if err := w.Send(context.Background(), &r); err != nil {
					b.Fatal(err)
				}
			}
			w.CloseSend()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
