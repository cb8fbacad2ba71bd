package owner

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// In these benchmarks an operation is a row, whatever the size of the transactions.

// BenchmarkPump measures decoding, routing and tracking. An acker acknowledges the records and discards them.
func BenchmarkPump(b *testing.B) {
	eachLoad(b, func(b *testing.B, l *load) {
		b.Helper()
		acker := new(acker)
		s := newTestSession(b, nil, acker, 0)
		acker.ack = s.ackRecords
		s.pump.StartSession(b.Context(), 0, s.published, &s.catalog)
		left := 0
		for b.Loop() {
			if left--; left > 0 {
				continue
			}
			batch := l.nextBatch()
			left = batch.rows
			for _, m := range batch.Messages {
				if _, err := s.pump.Handle(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		}
		acker.Flush()
		if got := s.tracker.Confirmed(); got != l.end {
			b.Errorf("confirmed %s of %s", got, l.end)
		}
	})
}

// An acker acknowledges records as a broker does: many at once.
type acker struct {
	sink.Writer // for the methods that a benchmark does not call
	ack         func(seqs []uint64) error
	seqs        []uint64
}

const ackTogether = 100

func (a *acker) Send(_ context.Context, r *sink.Record) error {
	if a.seqs = append(a.seqs, r.Seq); len(a.seqs) < ackTogether {
		return nil
	}
	defer func() { a.seqs = a.seqs[:0] }()
	return a.ack(a.seqs)
}

func (a *acker) Flush() {
	_ = a.ack(a.seqs)
	a.seqs = a.seqs[:0]
}

// BenchmarkSession measures a whole session except reading from the network. The source has its batches ready. The
// producer writes to an in-process broker that responds and discards the records.
func BenchmarkSession(b *testing.B) {
	eachLoad(b, func(b *testing.B, l *load) {
		b.Helper()
		all := make(chan struct{})
		s := newTestSession(b, &flood{load: l, rows: b.N, sent: all}, discardingSink(b, 0).NewWriter(sink.WriterConfig{}), 0)
		b.ResetTimer()
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		for <-all; s.tracker.Confirmed() != l.end; {
			time.Sleep(100 * time.Microsecond)
		}
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if got := s.tracker.Confirmed(); got != l.end {
			b.Errorf("confirmed %s of %s", got, l.end)
		}
	})
}

// A flood is a source that always has a batch ready. It ends after at least rows rows.
type flood struct {
	load *load
	rows int
	sent chan struct{} // closed when all rows have been read
}

func (f *flood) Run(ctx context.Context, _ func() pglogrepl.LSN, out chan<- *replication.Batch) error {
	for sent := 0; sent < f.rows; {
		batch := f.load.nextBatch()
		sent += batch.rows
		select {
		case out <- &batch.Batch:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(f.sent)
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *flood) Expired() error  { return nil }
func (f *flood) Heard(time.Time) {}

func (f *flood) Reported() pglogrepl.LSN { return 0 }

func (f *flood) Close(context.Context, pglogrepl.LSN) error { return nil }

// discardingSink returns a sink whose broker accepts everything after delay and stores nothing.
func discardingSink(tb testing.TB, delay time.Duration) sink.Sink {
	tb.Helper()
	k := kafkatest.Fake(tb, kfake.NumBrokers(1), kfake.SeedTopics(6, loadTopic))
	k.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Control.KeepControl()
		time.Sleep(delay)
		return kafkatest.Accept(req.(*kmsg.ProduceRequest)), nil, true
	})
	client, err := kafka.Config{Brokers: k.Addrs, Compression: "none"}.Open(tb.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// pumpLimit is the highest accepted ratio. The measured ratio is 7 on an Intel Xeon, and 16.5 on an AMD EPYC, where locks
// cost less.
const pumpLimit = 25

// TestGate compares two costs: decoding, routing and tracking a batch, and copying it while taking a lock for every
// message.
func TestGate(t *testing.T) {
	l, acker := newLoad(10, 200), new(acker)
	s := newTestSession(t, nil, acker, 0)
	acker.ack = s.ackRecords
	s.pump.StartSession(t.Context(), 0, s.published, &s.catalog)
	var mu sync.Mutex
	copied := 0
	var dst []byte
	ratio.Gate(t, pumpLimit,
		func() {
			for _, m := range l.nextBatch().Messages {
				if _, err := s.pump.Handle(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		},
		func() {
			b := &l.ring[copied%ringSize]
			dst = append(dst[:0], b.wire...)
			for range b.Messages {
				mu.Lock()
				mu.Unlock() //nolint:staticcheck // nothing is guarded: the lock is what is measured
			}
			copied++
		})
}
