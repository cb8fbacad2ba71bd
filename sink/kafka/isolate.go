package kafka

import (
	"slices"

	"github.com/IBM/sarama"
)

// isolate looks for the record because of which the broker has refused b, the first batch of
// part: it comes back in pieces, each a batch of its own, until the record is alone. The
// broker has appended nothing of b, so the sequences begin where b's did. p.mu is held.
func (p *producer) isolate(part *partition, b *batch, sh *shipment) {
	part.next = b.sequence
	if p.failure != nil {
		n := b.records
		b.sent, b.sequence = false, noSequence // it is in no log, so it may be dropped like the others
		p.drop()
		if b.records < n {
			if len(part.queue) > 0 {
				p.makeReady(part)
			}
			return
		}
	}
	if b.records == 1 {
		part.state = idle
		part.topic.unacked--
		p.forget(b.records, b.payload)
		for f := range b.all {
			p.reject(part.topic, part.id, &f, sh.err)
			break
		}
		p.removeFirst(part)
		part.trouble = trouble{}
		delete(p.trouble, part)
		if len(part.queue) > 0 {
			p.makeReady(part)
		}
		p.flush() // a substitute may be for another broker, whose sender waits to be asked
		return
	}
	if sh.block != nil && sh.block.Err == sarama.ErrMessageSizeTooLarge && !part.topic.hold {
		// The limit is lower than it was: without a new look, every batch would end here.
		part.topic.recheck = true
		p.holdFor(part.topic)
	}
	p.client.counters.retries.Add(1)
	p.split(part, b, cuts(b.records, sh))
	p.makeReady(part)
}

// cuts returns where to cut a batch of n records: around the records the broker has named
// (KIP-467), or in halves.
func cuts(n int, sh *shipment) []int {
	var at []int
	if sh.block != nil {
		for _, e := range sh.block.RecordErrors {
			if i := int(e.BatchIndex); i >= 0 && i < n {
				at = append(at, i, i+1)
			}
		}
	}
	slices.Sort(at)
	at = slices.DeleteFunc(slices.Compact(at), func(i int) bool { return i == 0 || i == n })
	if len(at) == 0 {
		return []int{n / 2}
	}
	return at
}

// split replaces b, the first batch of part, by batches that are cut at the given records.
// Memory for the copy is on top of the window. p.mu is held.
func (p *producer) split(part *partition, b *batch, at []int) {
	pieces := make([]*batch, 0, len(at)+1)
	i := 0
	for f := range b.all {
		if i == 0 || len(at) > 0 && i == at[0] {
			if i > 0 {
				pieces[len(pieces)-1].sealed = true
				at = at[1:]
			}
			pieces = append(pieces, p.newBatch())
		}
		piece := pieces[len(pieces)-1]
		s := f.shape()
		before := piece.held
		copy(piece.add(p.client.pool, &s, f.ms), f.raw)
		p.memory += piece.held - before
		i++
	}
	pieces[len(pieces)-1].sealed = true
	p.removeFirst(part)
	part.queue = slices.Insert(part.queue, 0, pieces...)
}

func (p *producer) newBatch() *batch {
	if n := len(p.spare); n > 0 {
		b := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return b
	}
	return new(batch)
}

// removeFirst takes the first batch off part's queue and gives its memory back. p.mu is held.
func (p *producer) removeFirst(part *partition) {
	b := part.queue[0]
	p.memory -= b.held
	b.reset(p.client.pool)
	p.spare = append(p.spare, b)
	part.pop()
}
