package jetstream

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const benchKeys = 8192

// benchRows returns rows of 200 bytes with a UUID as id, an event type and one of benchKeys keys.
func benchRows(n int, subject string) []sink.Record {
	at, value := time.Now(), []byte(strings.Repeat("x", 200))
	rows := make([]sink.Record, n)
	for i := range rows {
		rows[i] = sink.Record{
			Seq: uint64(i + 1), Topic: subject, Partition: sink.AnyPartition, Timestamp: at, Value: value,
			Key:      fmt.Appendf(nil, "aggregate-%08d", i*7919%benchKeys),
			Headers:  []sink.Header{{Key: "id", Value: []byte(uuid.NewString())}, {Key: "eventType", Value: []byte("OrderPlaced")}},
			Position: sink.Position{CommitLSN: uint64(i + 1)},
		}
	}
	return rows
}

// BenchmarkPublish writes the same rows with a Writer and with PublishMsgAsync of nats.go, to a server in this process.
func BenchmarkPublish(b *testing.B) {
	for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
		b.Run("sink/"+storage.String(), func(b *testing.B) { bench(b, storage, writeRows) })
		b.Run("PublishMsgAsync/"+storage.String(), func(b *testing.B) { bench(b, storage, publishRows) })
	}
}

// A benched writes rows to a server and returns when they are acknowledged, with the time that it took.
type benched func(tb testing.TB, s *natstest.Server, rows []sink.Record) time.Duration

func bench(b *testing.B, storage jetstream.StorageType, write benched) {
	b.Helper()
	s := natstest.Start(b)
	rows := benchRows(b.N, s.Stream(b, jetstream.StreamConfig{Storage: storage}))
	b.ReportAllocs()
	b.ResetTimer()
	took := write(b, s, rows)
	b.ReportMetric(float64(b.N)/took.Seconds(), "records/s")
}

// The gate: a Writer writes at least 0.8 times as many rows in a second as the asynchronous publishing of nats.go does. The rounds
// alternate, and the best one of each counts, because other processes disturb it least.
func TestGate(t *testing.T) {
	need.FullRun(t, "it measures for a minute")
	const rounds, n = 6, 100_000
	s := natstest.Start(t)
	best := map[string]time.Duration{}
	for range rounds {
		for name, write := range map[string]benched{"sink": writeRows, "nats.go": publishRows} {
			rows := benchRows(n, s.Stream(t, jetstream.StreamConfig{}))
			if took := write(t, s, rows); best[name] == 0 || took < best[name] {
				best[name] = took
			}
		}
	}
	ratio := best["nats.go"].Seconds() / best["sink"].Seconds()
	t.Logf("%.0f rows/s, nats.go %.0f rows/s: %.2f", n/best["sink"].Seconds(), n/best["nats.go"].Seconds(), ratio)
	if ratio < 0.8 {
		t.Errorf("%.2f times the throughput of nats.go, want 0.8", ratio)
	}
}

// writeRows writes rows with a Writer.
func writeRows(tb testing.TB, s *natstest.Server, rows []sink.Record) time.Duration {
	tb.Helper()
	on, err := Config{Servers: s.Addrs}.Open(tb.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	defer on.Close()
	w := on.NewWriter(sink.WriterConfig{})
	var acked atomic.Int64
	ran := make(chan error, 1)
	start := time.Now()
	go func() { ran <- w.Run(tb.Context(), func(seqs []uint64, _ error) { acked.Add(int64(len(seqs))) }) }()
	for i := range rows {
		if err := w.Send(tb.Context(), &rows[i]); err != nil {
			tb.Fatal(err)
		}
	}
	w.CloseSend()
	if err := <-ran; err != nil || acked.Load() != int64(len(rows)) {
		tb.Fatalf("%v, %d of %d acknowledged", err, acked.Load(), len(rows))
	}
	return time.Since(start)
}

// publishRows follows the example of package jetstream for asynchronous publishing, with its default of pending messages.
func publishRows(tb testing.TB, s *natstest.Server, rows []sink.Record) time.Duration {
	tb.Helper()
	var failed atomic.Int64
	js, err := jetstream.New(s.Connect(tb), jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { failed.Add(1) }))
	if err != nil {
		tb.Fatal(err)
	}
	start := time.Now()
	for i := range rows {
		r := &rows[i]
		m := &nats.Msg{Subject: r.Topic, Data: r.Value, Header: nats.Header{
			KeyHeader: {string(r.Key)}, sink.TimestampHeader: {r.Timestamp.UTC().Format(sink.TimestampFormat)}, jetstream.MsgIDHeader: {string(r.Headers[0].Value)},
		}}
		for _, h := range r.Headers {
			m.Header.Add(h.Key, string(h.Value))
		}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)); err != nil {
			tb.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if failed.Load() > 0 {
		tb.Fatalf("%d failed", failed.Load())
	}
	return time.Since(start)
}
