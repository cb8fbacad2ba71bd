package webhook

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	benchConcurrency = 64
	benchKeys        = 8192
)

// benchServer is a receiver that only reads.
func benchServer(tb testing.TB) string {
	tb.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	tb.Cleanup(s.Close)
	return s.URL + "/in"
}

func benchRecord() sink.Record {
	return sink.Record{
		Topic: "orders", Partition: sink.AnyPartition, Value: bytes.Repeat([]byte("x"), 200), Timestamp: time.Now(),
		Headers: header("id", "0196a1a2-7d3e-7b6c-9a4e-1f2d3c4b5a69", "eventType", "OrderPlaced"),
	}
}

// drain sends n records and returns the time until they are acknowledged.
func drain(tb testing.TB, cfg Config, n int) time.Duration {
	tb.Helper()
	opened, err := cfg.Open(tb.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	defer opened.Close()
	w := opened.NewWriter(sink.WriterConfig{})
	ran := make(chan error, 1)
	began := time.Now()
	go func() { ran <- w.Run(tb.Context(), func([]uint64, error) {}) }()
	rec := benchRecord()
	for i := range n {
		rec.Seq, rec.Key = uint64(i+1), fmt.Appendf(nil, "aggregate-%08d", i*7919%benchKeys)
		if err := w.Send(tb.Context(), &rec); err != nil {
			tb.Fatal(err)
		}
	}
	w.CloseSend()
	if err := <-ran; err != nil {
		tb.Fatal(err)
	}
	return time.Since(began)
}

// plainDrain does the same with a client of package http, without order and retries. The requests have the headers of the sink,
// or none.
func plainDrain(tb testing.TB, url string, n int, headers bool) time.Duration {
	tb.Helper()
	var header http.Header
	if headers {
		rec := benchRecord()
		rec.Key = []byte("aggregate-00000000")
		cfg := benchConfig(url).withDefaults()
		event := wrap(&cfg, &rec)
		event.sign([][]byte{make([]byte, 32)}, time.Now(), rec.Value)
		header = event.header
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchConcurrency, DisableCompression: true}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	began := time.Now()
	var next atomic.Int64
	var posting sync.WaitGroup
	value := benchRecord().Value
	for range benchConcurrency {
		posting.Go(func() {
			for next.Add(1) <= int64(n) {
				req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, url, bytes.NewReader(value))
				if err != nil {
					tb.Error(err)
					return
				}
				maps.Copy(req.Header, header)
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					tb.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	posting.Wait()
	return time.Since(began)
}

func benchConfig(url string) Config { return Config{URL: url, Concurrency: benchConcurrency} }

func signed(cfg Config) Config {
	secret := base64.StdEncoding.EncodeToString(make([]byte, 32))
	cfg.Secrets = func() ([]string, error) { return []string{secret}, nil }
	return cfg
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPost compares the sink with a plain client of package http, with the same number of connections. The CPU time
// includes that of the receiver.
func BenchmarkPost(b *testing.B) {
	url := benchServer(b)
	for _, bb := range []struct {
		name string
		run  func(n int) time.Duration
	}{
		{"sink", func(n int) time.Duration { return drain(b, benchConfig(url), n) }},
		{"sink, signed", func(n int) time.Duration { return drain(b, signed(benchConfig(url)), n) }},
		{"net/http, with these headers", func(n int) time.Duration { return plainDrain(b, url+"/orders", n, true) }},
		{"net/http, without", func(n int) time.Duration { return plainDrain(b, url+"/orders", n, false) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			used := cpu()
			took := bb.run(b.N)
			b.ReportMetric(float64(b.N)/took.Seconds(), "records/s")
			b.ReportMetric((cpu()-used).Seconds()/float64(b.N)*1e6, "cpu-s/M")
		})
	}
}

// TestGate: the sink reaches most of the rate of a plain client that sends the same requests. Each round measures both, and the
// best round counts.
func TestGate(t *testing.T) {
	need.FullRun(t, "it measures for seconds")
	const n, limit = 20_000, 0.8
	url := benchServer(t)
	best := 0.0
	for range 5 {
		ours := drain(t, signed(benchConfig(url)), n)
		same := plainDrain(t, url+"/orders", n, true)
		bare := plainDrain(t, url+"/orders", n, false)
		t.Logf("%.0f/s; net/http with the same headers %.0f/s: %.2f; without headers %.0f/s: %.2f", n/ours.Seconds(),
			n/same.Seconds(), same.Seconds()/ours.Seconds(), n/bare.Seconds(), bare.Seconds()/ours.Seconds())
		best = max(best, same.Seconds()/ours.Seconds())
	}
	if best < limit {
		t.Errorf("%.2f of a plain client, the limit is %.2f", best, limit)
	}
}

// TestMemoryWithoutReceiver: while the receiver is down, the memory stays that of the window.
func TestMemoryWithoutReceiver(t *testing.T) {
	need.FullRun(t, "it measures memory while the Writer backs off")
	r := newReceiver(t, false)
	r.create("orders")
	cfg := r.config()
	cfg.WindowRecords, cfg.WindowBytes = 5000, 4<<20
	s := start(t, cfg, sink.WriterConfig{})
	_, heal := r.begin(&fault{down: true})
	defer heal()
	rec := benchRecord()
	for i := range 5000 {
		rec.Seq, rec.Key, rec.Headers[0].Value = uint64(i+1), fmt.Append(nil, i%1000), fmt.Append(nil, i)
		if err := s.Writer.Send(sinktest.Context(t), &rec); err != nil {
			t.Fatal(err)
		}
	}
	s.Writer.Flush()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	s.Await("retries", func() bool { return s.Sink.Stat().Retries > 10 })
	before := heap()
	was := s.Sink.Stat().Retries
	s.Await("more retries", func() bool { return s.Sink.Stat().Retries > was+5 })
	if after := heap(); after > before+before/2 {
		t.Errorf("%d kB become %d kB", before>>10, after>>10)
	}
	heal()
	s.Drain(5000)
}
