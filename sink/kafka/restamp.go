package kafka

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// present is how old a timestamp may be and pass for the present one. A broker that does not
// take it has another idea of the time than we have, and would take no other.
const present = time.Second

// restamp gives those records of b the present time that the broker has refused for their
// timestamps, and has b sent again. It reports whether there are any. b is the first batch
// of part, and the broker has appended nothing of it. p.mu is held.
func (p *producer) restamp(part *partition, b *batch, sh *shipment) bool {
	if sh.block == nil || sh.block.Err != sarama.ErrInvalidTimestamp || p.failure != nil {
		return false
	}
	now := time.Now()
	accused := accused(b.records, sh.block)
	stamped := p.newBatch()
	n := 0
	for f := range b.all {
		r, ms := f.record(), f.ms
		if accused[stamped.records] && now.Sub(r.Timestamp).Abs() > present {
			ms = millis(now)
			keepTimestamp(&r)
			n++
		}
		s := shapeOf(&r)
		putFrame(stamped.add(p.client.pool, &s, ms), &r, ms)
	}
	if n == 0 {
		stamped.reset(p.client.pool)
		p.spare = append(p.spare, stamped)
		return false
	}
	stamped.sealed = true
	p.memory += stamped.held
	p.payload += stamped.payload - b.payload
	part.next = b.sequence
	p.removeFirst(part)
	part.queue = slices.Insert(part.queue, 0, stamped)
	p.client.counters.retries.Add(1)
	p.client.counters.restamped.Add(int64(n))
	p.admitRestamp(part.topic)
	p.makeReady(part)
	return true
}

// accused returns for each of n records of a batch whether the broker holds it against the
// batch: it has named it (KIP-467), or none.
func accused(n int, block *sarama.ProduceResponseBlock) []bool {
	if len(block.RecordErrors) == 0 {
		return slices.Repeat([]bool{true}, n)
	}
	named := make([]bool, n)
	for _, e := range block.RecordErrors {
		if i := int(e.BatchIndex); i >= 0 && i < n {
			named[i] = true
		}
	}
	return named
}

// keepTimestamp puts the timestamp into a header, unless an earlier one is in it.
func keepTimestamp(r *sink.Record) {
	if n := len(r.Headers); n > 0 && r.Headers[n-1].Key == sink.TimestampHeader {
		return
	}
	r.Headers = append(r.Headers, sink.Header{Key: sink.TimestampHeader, Value: r.Timestamp.UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z07:00")})
}

// admitRestamp logs once that t does not take the timestamps of its records. p.mu is held.
func (p *producer) admitRestamp(t *topic) {
	if t.restamped {
		return
	}
	t.restamped = true
	name := t.name
	p.note(func(ctx context.Context) {
		p.log.WarnContext(ctx, "topic does not take timestamps of records, they get the present time",
			slog.String("topic", name), slog.String("header", sink.TimestampHeader))
	})
}
