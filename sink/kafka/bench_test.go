package kafka

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// benchKeys returns the keys of 8,192 aggregates, 18 B each.
func benchKeys() [][]byte { return benchKeysOf(8192) }

func benchKeysOf(aggregates int) [][]byte {
	keys := make([][]byte, aggregates)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "aggregate-%08d", i)
	}
	return keys
}

func benchValue(size int) []byte {
	v := make([]byte, 0, size)
	for len(v) < size {
		v = fmt.Appendf(v, `{"id":%d,"state":"shipped"},`, len(v)*7919)
	}
	return v[:size]
}

// benchNoise returns bytes that do not compress.
func benchNoise(size int) []byte {
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
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

// BenchmarkProduce writes to a real broker with 6 partitions, acks=all and an idempotent producer.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{200, 1000} {
		b.Run(fmt.Sprintf("sink/%dB", size), func(b *testing.B) { benchSink(b, size, 0, 6, benchKeys()) })
		b.Run(fmt.Sprintf("sink/%dB/2headers", size), func(b *testing.B) { benchSink(b, size, 2, 6, benchKeys()) })
		b.Run(fmt.Sprintf("AsyncProducer/%dB", size), func(b *testing.B) { benchAsync(b, size) })
	}
}

// BenchmarkSpread is BenchmarkProduce with 100,000 keys and an increasing number of partitions.
func BenchmarkSpread(b *testing.B) {
	keys := benchKeysOf(100_000)
	for _, partitions := range []int32{1, 12, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) { benchSink(b, 200, 2, partitions, keys) })
	}
}

func benchSink(b *testing.B, size, headers int, partitions int32, keys [][]byte) {
	b.Helper()
	k := kafkatest.Broker(b)
	topic := k.Topic(b, partitions, nil)
	c := openClient(b, Config{Brokers: k.Addrs}, slog.New(slog.DiscardHandler))
	rec := benchRecord(size, headers)
	rec.Topic = topic
	var acked atomic.Int64
	p := c.newProducer(sink.WriterConfig{})
	ran := make(chan error, 1)
	go func() {
		ran <- p.Run(b.Context(), func(seqs []uint64, err error) { acked.Add(int64(len(seqs))) })
	}()
	warm := rec
	warm.Key = keys[0]
	_ = p.Send(b.Context(), &warm)
	p.Flush()
	for acked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	for i := range b.N {
		rec.Seq, rec.Key = uint64(i+1), keys[i*7919%len(keys)]
		if err := p.Send(b.Context(), &rec); err != nil {
			b.Fatal(err)
		}
	}
	p.CloseSend()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
	report(b, began, used)
	if got := acked.Load(); got != int64(b.N)+1 {
		b.Fatalf("%d of %d acknowledged", got, b.N+1)
	}
}

// BenchmarkLatency measures the time from the scheduled send of a 1 kB record to its acknowledgement. It sends at
// fixed rates, flushes after each record, and uses one connection or two.
func BenchmarkLatency(b *testing.B) {
	for _, rate := range []int{1000, 3000} {
		for _, connections := range []int{1, 2} {
			b.Run(fmt.Sprintf("rate=%d/connections=%d", rate, connections), func(b *testing.B) {
				benchLatency(b, rate, connections)
			})
		}
	}
}

func benchLatency(b *testing.B, rate, connections int) {
	b.Helper()
	k := kafkatest.Broker(b)
	topic := k.Topic(b, 6, nil)
	c := openClient(b, Config{Brokers: k.Addrs, ConnectionsPerBroker: connections}, slog.New(slog.DiscardHandler))
	due, took := make([]time.Time, b.N), make([]time.Duration, b.N)
	p := c.newProducer(sink.WriterConfig{})
	ran := make(chan error, 1)
	go func() {
		ran <- p.Run(b.Context(), func(seqs []uint64, _ error) {
			for _, seq := range seqs {
				took[seq] = time.Since(due[seq])
			}
		})
	}()
	keys, value := benchKeys(), benchValue(1000)
	began, used := time.Now(), cpu()
	for i := range b.N {
		due[i] = began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due[i]))
		rec := sink.Record{Seq: uint64(i), Topic: topic, Partition: sink.AnyPartition, Key: keys[i%len(keys)], Value: value}
		if err := p.Send(b.Context(), &rec); err != nil {
			b.Fatal(err)
		}
		p.Flush()
	}
	p.CloseSend()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
	report(b, began, used)
	took = took[b.N/10:] // drop the broker's warm-up
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// benchAsync runs the same benchmark with sarama's own producer, configured for the same guarantees.
func benchAsync(b *testing.B, size int) {
	b.Helper()
	k := kafkatest.Broker(b)
	topic := k.Topic(b, 6, nil)
	p, err := sarama.NewAsyncProducer(k.Addrs, asyncConfig())
	if err != nil {
		b.Fatal(err)
	}
	keys, value := benchKeys(), benchValue(size)
	window := make(chan struct{}, 20_000)
	done := make(chan int)
	go func() {
		n := 0
		for range p.Successes() {
			<-window
			n++
		}
		done <- n
	}()
	go func() {
		for err := range p.Errors() {
			b.Error(err)
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	began, used := time.Now(), cpu()
	for i := range b.N {
		window <- struct{}{}
		p.Input() <- &sarama.ProducerMessage{Topic: topic, Key: sarama.ByteEncoder(keys[i*7919%len(keys)]), Value: sarama.ByteEncoder(value)}
	}
	for range cap(window) { // an earlier Close would fail the messages that sarama retries
		window <- struct{}{}
	}
	p.AsyncClose()
	if n := <-done; n != b.N {
		b.Fatalf("%d of %d acknowledged", n, b.N)
	}
	report(b, began, used)
}

// asyncConfig configures AsyncProducer for the strongest guarantees it offers.
func asyncConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = protocol()
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewMurmur2Partitioner
	cfg.Producer.Retry.Max = 1000
	cfg.Producer.Retry.Backoff = 10 * time.Millisecond
	cfg.Metadata.Retry.Max = 1000
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Net.MaxOpenRequests = 1
	return cfg
}
