package sqs

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest/queuetest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const benchKeys = 8192

func benchRecord(destination string) sink.Record {
	return sink.Record{
		Topic: destination, Partition: sink.AnyPartition, Value: bytes.Repeat([]byte("x"), 200), Timestamp: time.Now(),
		Headers: []sink.Header{pair("id", "0196a1a2-7d3e-7b6c-9a4e-1f2d3c4b5a69"), pair("eventType", "OrderPlaced")},
	}
}

// benchID returns an event id that no other record of the process has.
func benchID() []byte { return fmt.Appendf(nil, "0196a1a2-7d3e-7b6c-9a4e-%012x", benchIDs.Add(1)) }

var benchIDs atomic.Int64

// drain sends n records and returns the time until they are acknowledged.
func drain(tb testing.TB, cfg Config, destination string, n int) time.Duration {
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
	rec := benchRecord(destination)
	for i := range n {
		rec.Seq, rec.Key, rec.Headers[0].Value = uint64(i+1), fmt.Appendf(nil, "aggregate-%08d", i*7919%benchKeys), benchID()
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

// plainDrain sends the same messages in full batches with the library alone, without order and retries.
func plainDrain(tb testing.TB, cfg Config, url string, n int) time.Duration {
	tb.Helper()
	cfg = cfg.withDefaults()
	loaded, err := cfg.load(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	http := cfg.httpClient(loaded.HTTPClient, new(network.Dialer))
	defer http.CloseIdleConnections()
	client := sqs.NewFromConfig(loaded, func(o *sqs.Options) { o.BaseEndpoint, o.HTTPClient = &cfg.SQSEndpoint, http })
	rec := benchRecord(url)
	value, at := string(rec.Value), rec.Timestamp.UTC().Format(time.RFC3339Nano)
	began := time.Now()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range cfg.Batches {
		sending.Go(func() {
			for {
				first := int(next.Add(maxEntries)) - maxEntries
				if first >= n {
					return
				}
				in := &sqs.SendMessageBatchInput{QueueUrl: &url}
				for i := first; i < min(first+maxEntries, n); i++ {
					id, key := string(benchID()), fmt.Sprintf("aggregate-%08d", i*7919%benchKeys)
					text := func(s string) sqstypes.MessageAttributeValue {
						return sqstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
					}
					in.Entries = append(in.Entries, sqstypes.SendMessageBatchRequestEntry{
						Id: aws.String(strconv.Itoa(i)), MessageBody: &value, MessageGroupId: &key, MessageDeduplicationId: &id,
						MessageAttributes: map[string]sqstypes.MessageAttributeValue{
							"id": text(id), "eventType": text("OrderPlaced"), keyAttribute: text(key), sink.TimestampHeader: text(at),
						},
					})
				}
				if resp, err := client.SendMessageBatch(tb.Context(), in); err != nil || len(resp.Failed) > 0 {
					tb.Errorf("SendMessageBatch: %v", err)
					return
				}
			}
		})
	}
	sending.Wait()
	return time.Since(began)
}

// BenchmarkSend compares the sink with a loop over the library's SendMessageBatch of the same concurrency, over an
// in-process server that takes part in both.
func BenchmarkSend(b *testing.B) {
	server := awstest.Fake(b)
	url, cfg := server.Queue("bench.fifo", LargestMaxBytes), testConfig(server.URL)
	report := func(b *testing.B, took time.Duration) {
		b.Helper()
		b.ReportMetric(float64(b.N)/took.Seconds(), "records/s")
	}
	b.Run("sink", func(b *testing.B) { report(b, drain(b, cfg, url, b.N)) })
	b.Run("SendMessageBatch", func(b *testing.B) { report(b, plainDrain(b, cfg, url, b.N)) })
}

// TestGate: the sink reaches most of the rate of a loop over SendMessageBatch, on ElasticMQ. Each round measures both, in
// turns and with queues of their own, until one is good enough.
func TestGate(t *testing.T) {
	need.FullRun(t, "it measures for seconds")
	const n, limit, rounds = 3000, 0.8, 8
	endpoint := awstest.ElasticMQ(t)
	cfg := testConfig(endpoint)
	queues := queuetest.New(endpoint)
	measured := func(drain func(testing.TB, Config, string, int) time.Duration) float64 {
		url := queues.Create(t, fmt.Sprintf("gate-%d.fifo", time.Now().UnixNano()), LargestMaxBytes)
		return n / drain(t, cfg, url, n).Seconds()
	}
	measured(plainDrain) // the first requests are slow
	best := 0.0
	for round := 0; round < rounds && best < limit; round++ {
		var ours, plain float64
		if round%2 == 0 {
			ours, plain = measured(drain), measured(plainDrain)
		} else {
			plain, ours = measured(plainDrain), measured(drain)
		}
		t.Logf("%.0f/s, SendMessageBatch %.0f/s: %.2f", ours, plain, ours/plain)
		best = max(best, ours/plain)
	}
	if best < limit {
		t.Errorf("%.2f of SendMessageBatch, the limit is %.2f", best, limit)
	}
}
