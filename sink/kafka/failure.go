package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// reject sends a substitute for the record f, which its caller has forgotten, and reports
// true, or else ends the producer because of it. Then what was sent before f is still
// delivered; the rest is dropped, so that nothing is in a log that was sent after a record
// that is missing, except what was on the wire already. p.mu is held; unlock reports the
// record.
func (p *producer) reject(t *topic, partition int32, f *frame, reason error) (substituted bool) {
	s := f.shape()
	r := f.record()
	r.Topic, r.Partition = t.name, partition
	e := &sink.RecordError{
		Seq: f.seq, Topic: t.name, Partition: partition, Key: bytes.Clone(f.key), Headers: cloneHeaders(r.Headers),
		Size: batchOverhead + s.wire(0, 0), Limit: t.limit, Reason: reason,
	}
	if code, ok := errors.AsType[*codeError](reason); ok {
		e.Code = code.Name
	}
	if t.guessed {
		e.Limit = 0
	}
	if p.cfg.Substitute != nil && !p.halted && f.seq < p.cut {
		if instead := p.cfg.Substitute(&r, e); instead != nil {
			instead.Seq = f.seq
			s := shapeOf(instead)
			p.accept(instead, &s)
			return true
		}
	}
	p.rejected = append(p.rejected, e)
	if p.halted || f.seq >= p.cut {
		return false
	}
	p.failure, p.cut = e, f.seq
	p.drop()
	p.wind()
	return false
}

func cloneHeaders(headers []sink.Header) []sink.Header {
	clones := make([]sink.Header, 0, len(headers))
	for _, h := range headers {
		clones = append(clones, sink.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return clones
}

// rejectHeld rejects the records that wait for t. The first that has no substitute ends the
// producer, and the others are dropped. p.mu is held.
func (p *producer) rejectHeld(t *topic, reason error) {
	held := t.held
	t.held = frames{}
	t.hold, t.trouble = false, trouble{} // the next record for it has it looked up again
	delete(p.holding, t)
	p.forget(held.records, held.payload)
	p.memory -= held.held
	for f := range held.all {
		if !p.reject(t, f.partition, &f, reason) {
			break
		}
	}
	held.release(p.client.pool)
	p.flush()
}

// halt ends the producer because of err: nothing more is sent, answers that are outstanding
// are awaited. p.mu is held.
func (p *producer) halt(err error) {
	if p.halted {
		return
	}
	p.failure, p.halted, p.cut = err, true, 0
	p.wind()
}

// wind lets Send return and the rest go out, and ends Run if nothing is left. p.mu is held.
func (p *producer) wind() {
	signal(p.space)
	p.flush()
	p.finishIfDone()
}

// drop forgets every record behind p.cut that was never sent. p.mu is held.
func (p *producer) drop() {
	for _, t := range p.topics {
		p.discard(&t.held, p.cut)
		for _, part := range t.parts {
			part.queue = slices.DeleteFunc(part.queue, func(b *batch) bool {
				if b.sent {
					return false
				}
				n := b.records
				p.discard(&b.frames, p.cut)
				b.measure()
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
func (p *producer) discard(fs *frames, cut uint64) {
	before := *fs
	fs.truncate(p.client.pool, cut)
	p.forget(before.records-fs.records, before.payload-fs.payload)
	p.memory -= before.held - fs.held
}

// forget takes records out of the account of what Send has taken. p.mu is held.
func (p *producer) forget(records, payload int) {
	p.records -= records
	p.payload -= payload
}

// unlock releases p.mu and reports the records that were rejected under it.
func (p *producer) unlock() {
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
func (p *producer) complain(t *topic, k sarama.KError) {
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
