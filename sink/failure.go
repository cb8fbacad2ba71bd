package sink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/IBM/sarama"
)

// reject ends the producer because of the record f, which its caller has forgotten. What was
// sent before f is still delivered; the rest is dropped, so that nothing is in a log that
// was sent after a record that is missing, except what was on the wire already. p.mu is
// held; unlock reports the record.
func (p *Producer) reject(t *topic, partition int32, f *frame, reason error) {
	s := f.shape()
	e := &RecordError{
		Seq: f.seq, Topic: t.name, Partition: partition, Key: bytes.Clone(f.key),
		Size: batchOverhead + s.wire(0, 0), Limit: t.limit, Reason: reason,
	}
	if t.guessed {
		e.Limit = 0
	}
	for rest := f.rest; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextHeader(rest)
		e.Headers = append(e.Headers, Header{Key: string(key), Value: bytes.Clone(value)})
	}
	p.rejected = append(p.rejected, e)
	if p.halted || f.seq >= p.cut {
		return
	}
	p.failure, p.cut = e, f.seq
	p.drop()
	p.wind()
}

// rejectHeld rejects the first record that waits for t, and with it the others. p.mu is held.
func (p *Producer) rejectHeld(t *topic, reason error) {
	held := t.held
	t.held = frames{}
	delete(p.holding, t)
	p.forget(held.records, held.payload)
	p.memory -= held.held
	for f := range held.all {
		p.reject(t, f.partition, &f, reason)
		break
	}
	held.release(p.client.pool)
}

// halt ends the producer because of err: nothing more is sent, answers that are outstanding
// are awaited. p.mu is held.
func (p *Producer) halt(err error) {
	if p.halted {
		return
	}
	p.failure, p.halted, p.cut = err, true, 0
	p.wind()
}

// wind lets Send return and the rest go out. p.mu is held.
func (p *Producer) wind() {
	signal(p.space)
	p.flush()
	p.finishIfDone()
}

// drop forgets every record behind p.cut that was never sent. p.mu is held.
func (p *Producer) drop() {
	for _, t := range p.topics {
		p.discard(&t.held, p.cut)
		for _, part := range t.parts {
			part.queue = slices.DeleteFunc(part.queue, func(b *batch) bool {
				if b.sent {
					return false
				}
				n := b.records
				p.discard(&b.frames, p.cut)
				t.unacked -= n - b.records
				return b.records == 0
			})
			if len(part.queue) == 0 && part.state != idle {
				part.state = idle
				part.trouble = trouble{}
				delete(p.trouble, part)
			}
		}
	}
}

// discard forgets the frames of fs with a sequence beyond cut. p.mu is held.
func (p *Producer) discard(fs *frames, cut uint64) {
	before := *fs
	fs.truncate(p.client.pool, cut)
	p.forget(before.records-fs.records, before.payload-fs.payload)
	p.memory -= before.held - fs.held
}

// forget takes records out of the account of what Send has taken. p.mu is held.
func (p *Producer) forget(records, payload int) {
	p.records -= records
	p.payload -= payload
}

// unlock releases p.mu and reports the records that were rejected under it.
func (p *Producer) unlock() {
	rejected := p.rejected
	p.rejected = nil
	p.mu.Unlock()
	for _, e := range rejected {
		p.report([]uint64{e.Seq}, e)
	}
}

// unfit says why a record does not fit t.
func (t *topic) unfit(s *shape) error {
	if t.limit < batchOverhead+s.wire(0, 0) {
		return errorOf(sarama.ErrMessageSizeTooLarge)
	}
	e := errorOf(sarama.ErrUnknownTopicOrPartition)
	e.Detail = fmt.Sprintf("the topic has %d partitions", len(t.parts))
	return e
}

// complain logs once that a topic needs somebody to act, until it takes records again. Codes
// that heal by themselves are none of its business, nor is a topic that we create. p.mu is
// held.
func (p *Producer) complain(t *topic, k sarama.KError) {
	c := classify(k)
	ours := c == missing && p.client.cfg.CreateTopics != nil
	if t.refused || c != missing && c != refused || ours {
		return
	}
	t.refused = true
	name := t.name
	p.note(func(ctx context.Context) {
		p.log.ErrorContext(ctx, "topic does not take records, trying on",
			slog.String("topic", name), slog.Any("err", errorOf(k)))
	})
}
