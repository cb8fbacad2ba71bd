package kafka

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/ratio"
)

// newOfflineProducer returns a producer without connections that knows topic t with the given number of partitions.
// The returned function acknowledges every queued record, as a broker's response does. The window must hold all
// records of a test: nothing is sent, so only that function makes room.
func newOfflineProducer(tb testing.TB, cfg Config, partitions int) (p *producer, acknowledge func()) {
	tb.Helper()
	cfg.Brokers, cfg.WindowBytes = []string{"none"}, 64<<20
	c, err := newClient(cfg.withDefaults(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		tb.Fatal(err)
	}
	p = c.newProducer(sink.WriterConfig{})
	t := p.addTopic("t")
	t.resolving = false
	t.setLimit(topicInfo{limit: 1 << 20}, false)
	t.counters = p.client.counters.topic("t")
	t.addPartitions(partitions)
	s := &sender{producer: p, wake: make(chan struct{}, 1)}
	for _, part := range t.parts {
		part.sender = s
	}
	var seqs []uint64
	return p, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, part := range t.parts {
			for len(part.queue) > 0 {
				seqs = part.queue[0].appendSeqs(seqs[:0])
				p.acknowledgeBatch(part, part.queue[0])
				part.state = idle
			}
		}
		s.queue = senderQueue{items: s.queue.items[:0]}
	}
}

func benchRecord(size, headers int) sink.Record {
	r := sink.Record{Topic: "t", Partition: sink.AnyPartition, Value: benchValue(size), Timestamp: time.Now()}
	for i := range headers {
		r.Headers = append(r.Headers, sink.Header{Key: fmt.Sprint("header-", i), Value: []byte("0191f7a2-7d0a-4b7e-9a53-0b2f6a1f6a11")})
	}
	return r
}

// sendKeyed sends n copies of rec. It uses the keys in turn.
func sendKeyed(tb testing.TB, p *producer, keys [][]byte, rec sink.Record, n int) {
	tb.Helper()
	for i := range n {
		rec.Key = keys[i%len(keys)]
		if err := p.Send(tb.Context(), &rec); err != nil {
			tb.Fatal(err)
		}
	}
}

// shipment returns the first batch of every partition of t, as the producer would select them.
func (t *topic) shipment() []sentBatch {
	var shipped []sentBatch
	for _, part := range t.parts {
		if len(part.queue) > 0 {
			shipped = append(shipped, sentBatch{part: part, batch: part.queue[0]})
		}
	}
	return shipped
}

// envelopeOf returns an envelope of the given version with an empty header.
func envelopeOf(version int16) []byte {
	empty := emptyTopics
	if version >= flexibleProduceVersion {
		empty = emptyTopicsFlexible
	}
	msg := append(make([]byte, 8), empty...)
	binary.BigEndian.PutUint32(msg, uint32(len(msg)-4))
	binary.BigEndian.PutUint16(msg[6:], uint16(version))
	return msg
}

// TestSendDoesNotAllocate: in steady state, Send reuses the memory of acknowledged records. Only a batch that gets more
// records than it ever had allocates.
func TestSendDoesNotAllocate(t *testing.T) {
	for _, partitions := range []int{1, 6, 1000} {
		p, acknowledge := newOfflineProducer(t, Config{}, partitions)
		keys, rec := benchKeys(), benchRecord(200, 2)
		round := func() {
			sendKeyed(t, p, keys, rec, 10_000)
			acknowledge()
		}
		round()
		if allocs := testing.AllocsPerRun(10, round); allocs > max(10, float64(partitions)/10) {
			t.Errorf("%d partitions: 10,000 records take %v allocations", partitions, allocs)
		}
	}
}

// TestRequestDoesNotAllocate: after the first request of its kind, building a request allocates nothing per record
// or per batch, with any compression. Two of the compression libraries use a sync.Pool. With the race detector, a
// sync.Pool drops some items on purpose, so the limit for them is higher. It is still well below one allocation per
// record.
func TestRequestDoesNotAllocate(t *testing.T) {
	for compression, limit := range map[string]float64{"none": 1, "gzip": 1, "snappy": 400, "lz4": 400, "zstd": 1} {
		p, _ := newOfflineProducer(t, Config{Compression: compression}, 200)
		sendKeyed(t, p, benchKeys(), benchRecord(200, 2), 4000)
		shipped, msg := p.topics["t"].shipment(), envelopeOf(10)
		r := request{codec: p.client.codec}
		build := func() {
			r.batches = shipped
			if _, err := r.addBatches(msg); err != nil {
				t.Fatal(err)
			}
			r.releaseBatches()
		}
		build()
		if allocs := testing.AllocsPerRun(10, build); allocs > limit {
			t.Errorf("%s: a request of 4,000 records takes %v allocations", compression, allocs)
		}
	}
}

// BenchmarkSend measures Send and the acknowledgement, without the network.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{200, 1000} {
		for _, headers := range []int{0, 2} {
			b.Run(fmt.Sprintf("size=%d/headers=%d", size, headers), func(b *testing.B) {
				p, acknowledge := newOfflineProducer(b, Config{}, 6)
				keys, rec := benchKeys(), benchRecord(size, headers)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					rec.Key = keys[i%len(keys)]
					if err := p.Send(b.Context(), &rec); err != nil {
						b.Fatal(err)
					}
					if i%4000 == 0 {
						acknowledge()
					}
				}
			})
		}
	}
}

// BenchmarkFrame measures writing, sizing and reading the frame of a record.
func BenchmarkFrame(b *testing.B) {
	for _, headers := range []int{0, 2} {
		b.Run(fmt.Sprintf("size=200/headers=%d", headers), func(b *testing.B) {
			rec := benchRecord(200, headers)
			s := shapeOf(&rec)
			dst := make([]byte, s.frameSize())
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				putFrame(dst, &rec, 1)
				f, _ := readFrame(dst)
				if f.shape() != s {
					b.Fatal("another shape")
				}
			}
		})
	}
}

// BenchmarkRequest measures building a request from the frames of 4,000 records, in few batches and in many.
func BenchmarkRequest(b *testing.B) {
	for _, compression := range []string{"none", "lz4", "zstd"} {
		for _, partitions := range []int{1, 12, 1000} {
			b.Run(fmt.Sprintf("compression=%s/partitions=%d", compression, partitions), func(b *testing.B) {
				benchRequest(b, compression, partitions)
			})
		}
	}
}

func benchRequest(b *testing.B, compression string, partitions int) {
	b.Helper()
	const records = 4000
	p, _ := newOfflineProducer(b, Config{Compression: compression}, partitions)
	p.topics["t"].batchLimit = 2 << 20
	sendKeyed(b, p, benchKeys(), benchRecord(200, 2), records)
	shipped, msg := p.topics["t"].shipment(), envelopeOf(10)
	r := request{codec: p.client.codec}
	size := 0
	for i := range shipped {
		size += shipped[i].batch.size
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		r.batches = shipped
		if _, err := r.addBatches(msg); err != nil {
			b.Fatal(err)
		}
		r.releaseBatches()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
}

// frameLimit is the highest accepted ratio. The measured ratio is 2.
const frameLimit = 3

// TestGate compares two costs: writing and reading the frame of a record, and copying its bytes with length
// prefixes.
func TestGate(t *testing.T) {
	rec := benchRecord(200, 2)
	rec.Key = benchKeys()[0]
	var frame, dst []byte
	put := func(b []byte) { dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...) }
	ratio.Gate(t, frameLimit,
		func() {
			s := shapeOf(&rec)
			n := s.frameSize()
			if cap(frame) < n {
				frame = make([]byte, n)
			}
			putFrame(frame[:n], &rec, 1)
			if f, _ := readFrame(frame[:n]); f.headers != len(rec.Headers) {
				t.Fatal("another frame")
			}
		},
		func() {
			dst = dst[:0]
			put(rec.Key)
			put(rec.Value)
			for i := range rec.Headers {
				put([]byte(rec.Headers[i].Key))
				put(rec.Headers[i].Value)
			}
		})
}
