package sink

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// settled returns a producer without connections whose topic is known, and a function that
// acknowledges everything it holds, the way an answer does.
func settled(tb testing.TB) (p *Producer, acknowledge func()) {
	tb.Helper()
	cfg := Config{Brokers: []string{"none"}}.withDefaults()
	c, err := newClient(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		tb.Fatal(err)
	}
	p = c.NewProducer()
	t := p.introduce("t")
	t.hold = false
	t.setLimit(topicInfo{limit: 1 << 20}, false)
	t.grow(6)
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
				p.settleAccepted(part, part.queue[0])
				part.state = idle
			}
		}
		s.list = list{items: s.list.items[:0]}
	}
}

func benchRecord(size, headers int) Record {
	r := Record{Topic: "t", Partition: AnyPartition, Value: benchValue(size), Timestamp: time.Now()}
	for i := range headers {
		r.Headers = append(r.Headers, Header{Key: fmt.Sprint("header-", i), Value: []byte("0191f7a2-7d0a-4b7e-9a53-0b2f6a1f6a11")})
	}
	return r
}

// TestSendDoesNotAllocate in steady state: what has been acknowledged is used again.
func TestSendDoesNotAllocate(t *testing.T) {
	p, acknowledge := settled(t)
	keys, rec := benchKeys(), benchRecord(200, 2)
	round := func() {
		for i := range 10_000 {
			rec.Key = keys[i%len(keys)]
			if err := p.Send(t.Context(), &rec); err != nil {
				t.Fatal(err)
			}
		}
		acknowledge()
	}
	round()
	if allocs := testing.AllocsPerRun(10, round); allocs > 10 {
		t.Errorf("10,000 records take %v allocations", allocs)
	}
}

// BenchmarkSend is the cost of Send and of the acknowledgement, without the sending between.
func BenchmarkSend(b *testing.B) {
	for _, headers := range []int{0, 2} {
		b.Run(fmt.Sprintf("200B/%dheaders", headers), func(b *testing.B) {
			p, acknowledge := settled(b)
			keys, rec := benchKeys(), benchRecord(200, headers)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				rec.Key = keys[i%len(keys)]
				if err := p.Send(b.Context(), &rec); err != nil {
					b.Fatal(err)
				}
				if i%20_000 == 0 {
					acknowledge()
				}
			}
		})
	}
}

// BenchmarkRequest is the cost of turning batches into what sarama encodes.
func BenchmarkRequest(b *testing.B) {
	p, acknowledge := settled(b)
	keys, rec := benchKeys(), benchRecord(200, 2)
	for i := range 4000 {
		rec.Key = keys[i%len(keys)]
		_ = p.Send(b.Context(), &rec)
	}
	var shipped []shipment
	for _, part := range p.topics["t"].parts {
		shipped = append(shipped, shipment{part: part, batch: part.queue[0]})
	}
	var r request
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r.build(shipped, p)
		r.release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*4000), "ns/record")
	acknowledge()
}
