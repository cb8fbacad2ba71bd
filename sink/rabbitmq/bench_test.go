package rabbitmq

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
)

// BenchmarkPublish writes persistent messages of 1 kB to a durable queue of a real server. The library's row is its
// PublishWithDeferredConfirm in a loop with as many unconfirmed messages.
func BenchmarkPublish(b *testing.B) {
	for _, queue := range []string{"classic", "quorum"} {
		b.Run("sink/"+queue, func(b *testing.B) { benchSink(b, queue) })
		b.Run("amqp091/"+queue, func(b *testing.B) { benchLibrary(b, queue) })
	}
}

// declareBench creates an exchange and a queue, which discards its oldest messages, in a virtual host.
func declareBench(b *testing.B, r *rabbittest.Server, kind string) (vhost string) {
	b.Helper()
	vhost = r.VHostName(b)
	conn, err := amqp.Dial(r.URL(vhost))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if err := ch.ExchangeDeclare("events", amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		b.Fatal(err)
	}
	if _, err := ch.QueueDeclare("events", true, false, false, false, amqp.Table{"x-queue-type": kind, "x-max-length": 10_000}); err != nil {
		b.Fatal(err)
	}
	if err := ch.QueueBind("events", "#", "events", false, nil); err != nil {
		b.Fatal(err)
	}
	return vhost
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report adds records/s and CPU seconds per million records.
func report(b *testing.B, began time.Time, used time.Duration) {
	b.Helper()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "records/s")
	b.ReportMetric((cpu()-used).Seconds()/float64(b.N)*1e6, "cpu-s/M")
}

func benchSink(b *testing.B, queue string) {
	b.Helper()
	r := rabbittest.Real(b)
	cfg := configOf(r, declareBench(b, r, queue))
	on, err := cfg.Open(b.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer on.Close()
	w := on.NewWriter(sink.WriterConfig{})
	var acked atomic.Int64
	ran := make(chan error, 1)
	go func() {
		ran <- w.Run(b.Context(), func(seqs []uint64, _ error) { acked.Add(int64(len(seqs))) })
	}()
	rec := sink.Record{
		Topic: "events", Partition: sink.AnyPartition, Value: make([]byte, 1000), Timestamp: time.Now(),
		Headers: []sink.Header{{Key: idHeader, Value: []byte("018f3b5c-0000-7000-8000-000000000000")}, {Key: typeHeader, Value: []byte("order.placed")}},
	}
	send := func(seq int) {
		rec.Seq, rec.Key = uint64(seq), fmt.Appendf(rec.Key[:0], "aggregate-%08d", seq*7919%8192)
		if err := w.Send(b.Context(), &rec); err != nil {
			b.Fatal(err)
		}
	}
	send(1)
	w.Flush()
	for acked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	for i := range b.N {
		send(i + 2)
	}
	w.CloseSend()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
	report(b, began, used)
	if got := acked.Load(); got != int64(b.N)+1 {
		b.Fatalf("%d of %d are acknowledged", got, b.N+1)
	}
}

func benchLibrary(b *testing.B, queue string) {
	b.Helper()
	r := rabbittest.Real(b)
	conn, err := amqp.Dial(r.URL(declareBench(b, r, queue)))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	body, now := make([]byte, 1000), time.Now()
	pending := make(chan *amqp.DeferredConfirmation, outstanding)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for c := range pending {
			if !c.Wait() {
				b.Error("not acknowledged")
			}
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	for i := range b.N {
		c, err := ch.PublishWithDeferredConfirmWithContext(b.Context(), "events", "order.placed", true, false, amqp.Publishing{
			Headers:      amqp.Table{KeyHeader: fmt.Sprintf("aggregate-%08d", i*7919%8192), TimeHeader: now.UnixMilli()},
			DeliveryMode: amqp.Persistent, MessageId: "018f3b5c-0000-7000-8000-000000000000", Type: "order.placed", Timestamp: now, Body: body,
		})
		if err != nil {
			b.Fatal(err)
		}
		pending <- c
	}
	close(pending)
	waiting.Wait()
	report(b, began, used)
}

// TestGate: the Writer publishes at least 0.8 times as many messages in a second to a quorum queue as a loop over the
// library's PublishWithDeferredConfirm. The two take turns, and the best round of each counts, because other processes
// disturb it least.
func TestGate(t *testing.T) {
	need.FullRun(t, "it measures for seconds")
	rabbittest.Real(t)
	const rounds, limit = 3, 0.8
	best := map[string]float64{}
	for range rounds {
		for name, run := range map[string]func(*testing.B, string){"sink": benchSink, "amqp091": benchLibrary} {
			result := testing.Benchmark(func(b *testing.B) {
				b.Helper()
				run(b, "quorum")
			})
			best[name] = max(best[name], result.Extra["records/s"])
		}
	}
	ratio := best["sink"] / best["amqp091"]
	t.Logf("%.0f/s, amqp091 %.0f/s: %.2f", best["sink"], best["amqp091"], ratio)
	if !(ratio >= limit) {
		t.Errorf("%.2f of the library, the limit is %.2f", ratio, limit)
	}
}
