package redisstreams

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

const benchSize = 200

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, began time.Time, used time.Duration) {
	b.Helper()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "records/s")
	b.ReportMetric((cpu()-used).Seconds()/float64(b.N)*1e6, "cpu-s/M")
}

// BenchmarkAppend compares the Writer with a loop of pipelines of XADD, as the client library offers it. Both append entries
// with the same fields to the same number of streams, in order.
func BenchmarkAppend(b *testing.B) {
	server := redistest.Start(b, redistest.Config{})
	for _, streams := range []int{1, 8} {
		for range 2 { // in turns, because the machine has other work
			b.Run(fmt.Sprintf("XADD/streams=%d", streams), func(b *testing.B) { benchXAdd(b, server, streams) })
			b.Run(fmt.Sprintf("sink/streams=%d", streams), func(b *testing.B) { benchSink(b, server, streams) })
		}
	}
}

func benchNames(b *testing.B, server *redistest.Server, streams int) []string {
	b.Helper()
	if err := server.Admin().FlushAll(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	names := make([]string, streams)
	for i := range names {
		names[i] = fmt.Sprint("orders-", i)
	}
	return names
}

func benchSink(b *testing.B, server *redistest.Server, streams int) {
	b.Helper()
	names := benchNames(b, server, streams)
	s, err := Config{Addrs: []string{server.Addr()}, CreateStreams: true}.Open(b.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := s.NewWriter(sink.WriterConfig{})
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.Background(), func([]uint64, error) {}) }()
	key, id := make([]byte, 0, 40), make([]byte, 0, 40)
	rec := sink.Record{Value: make([]byte, benchSize), Timestamp: time.Now(), Headers: []sink.Header{{Key: "id"}, {Key: "eventType", Value: []byte("OrderShipped")}}}
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	for i := range b.N {
		key = strconv.AppendInt(append(key[:0], "aggregate-"...), int64(i%8192), 10)
		id = strconv.AppendInt(append(id[:0], "0193583b-4c5b-7c41-a7a4-"...), int64(100_000_000_000+i), 10)
		rec.Seq, rec.Topic, rec.Key, rec.Headers[0].Value = uint64(i+1), names[i%streams], key, id
		rec.Position = sink.Position{CommitLSN: uint64(1_000_000 + i/10), Index: i % 10}
		if err := w.Send(b.Context(), &rec); err != nil {
			b.Fatal(err)
		}
	}
	w.CloseSend()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
	report(b, began, used)
}

func benchXAdd(b *testing.B, server *redistest.Server, streams int) {
	b.Helper()
	names := benchNames(b, server, streams)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := b.Context()
	key, id, value := make([]byte, 0, 40), make([]byte, 0, 40), make([]byte, benchSize)
	timestamp := strconv.FormatInt(time.Now().UnixMilli(), 10)
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	pipe := client.Pipeline()
	for i := range b.N {
		key = strconv.AppendInt(append(key[:0], "aggregate-"...), int64(i%8192), 10)
		id = strconv.AppendInt(append(id[:0], "0193583b-4c5b-7c41-a7a4-"...), int64(100_000_000_000+i), 10)
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: names[i%streams], ID: fmt.Sprintf("%d-%d", 1_000_000+i/10, i%10), Values: []any{
			"timestamp", timestamp, "key", string(key), "payload", value, "id", string(id), "eventType", "OrderShipped",
		}})
		if pipe.Len() == 500 || i == b.N-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	report(b, began, used)
}

// BenchmarkLatency measures the time from the scheduled send of a record to its acknowledgement, at 1,000 records per second,
// beside one XADD per record by the client library.
func BenchmarkLatency(b *testing.B) {
	server := redistest.Start(b, redistest.Config{})
	const rate = 1000
	pace := func(b *testing.B, send func(i int)) (due []time.Time) {
		b.Helper()
		due = make([]time.Time, b.N)
		began := time.Now()
		for i := range b.N {
			due[i] = began.Add(time.Duration(i) * time.Second / rate)
			time.Sleep(time.Until(due[i]))
			send(i)
		}
		return due
	}
	quantiles := func(b *testing.B, due, done []time.Time) {
		b.Helper()
		took := make([]time.Duration, len(due))
		for i := range due {
			took[i] = done[i].Sub(due[i])
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	b.Run("sink", func(b *testing.B) {
		s, err := Config{Addrs: []string{server.Addr()}, CreateStreams: true}.Open(b.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		done := make([]time.Time, b.N)
		w := s.NewWriter(sink.WriterConfig{})
		ran := make(chan error, 1)
		go func() {
			ran <- w.Run(context.Background(), func(seqs []uint64, _ error) {
				now := time.Now()
				for _, seq := range seqs {
					done[seq-1] = now
				}
			})
		}()
		due := pace(b, func(i int) {
			r := event("latency", i+1, uint64(time.Now().UnixNano()), 0)
			if err := w.Send(b.Context(), &r); err != nil {
				b.Fatal(err)
			}
			w.Flush()
		})
		w.CloseSend()
		if err := <-ran; err != nil {
			b.Fatal(err)
		}
		quantiles(b, due, done)
	})
	b.Run("XADD", func(b *testing.B) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		done := make([]time.Time, b.N)
		due := pace(b, func(i int) {
			if err := client.XAdd(b.Context(), &redis.XAddArgs{Stream: "plain", Values: []any{"key", "k", "payload", i}}).Err(); err != nil {
				b.Fatal(err)
			}
			done[i] = time.Now()
		})
		quantiles(b, due, done)
	})
}

// TestGate: the Writer appends at least 0.8 times as many entries in a second as a loop of pipelines of XADD. The two take
// turns, and the best round of each counts, because other processes disturb it least.
func TestGate(t *testing.T) {
	need.FullRun(t, "it measures for seconds")
	const rounds, limit = 4, 0.8
	server := redistest.Start(t, redistest.Config{})
	best := map[string]float64{}
	for range rounds {
		for name, run := range map[string]func(*testing.B, *redistest.Server, int){"sink": benchSink, "XADD": benchXAdd} {
			result := testing.Benchmark(func(b *testing.B) {
				b.Helper()
				run(b, server, 1)
			})
			best[name] = max(best[name], result.Extra["records/s"])
		}
	}
	ratio := best["sink"] / best["XADD"]
	t.Logf("%.0f/s, XADD %.0f/s: %.2f", best["sink"], best["XADD"], ratio)
	if !(ratio >= limit) {
		t.Errorf("%.2f of pipelines of XADD, the limit is %.2f", ratio, limit)
	}
}
