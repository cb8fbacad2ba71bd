package kafka

import (
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// contestSent contests the records that were sent with an earlier epoch of ours and have no outcome: the broker may have stored
// them. p.mu is held.
func (p *producer) contestSent() {
	if p.ownership == nil {
		return
	}
	for part := range p.allParts {
		if len(part.queue) == 0 || !part.queue[0].sent {
			continue
		}
		for f := range part.queue[0].all {
			p.lastContested = max(p.lastContested, f.seq)
		}
		part.resumed, part.stored = false, nil
	}
	p.contested = 0
	for _, t := range p.topics {
		p.contested += p.countContested(&t.unassigned)
	}
	for part := range p.allParts {
		for _, b := range part.queue {
			p.contested += p.countContested(&b.frames)
		}
	}
	for part := range p.allParts {
		if part.state == ready && p.mustResume(part) {
			p.awaitResume(part)
		}
	}
}

// countContested returns how many of the records of fs are contested. p.mu is held.
func (p *producer) countContested(fs *frames) int {
	n := 0
	for f := range fs.all {
		if f.seq <= p.lastContested {
			n++
		}
	}
	return n
}

// A takeOut has the records that were taken out of queues.
type takeOut struct {
	seqs    []uint64
	payload int
}

// takeStored takes the records that an earlier owner has stored out of the beginning of part's queue, up to a batch that has
// others. A batch that was sent stays as it is, because its sequence counts its records. p.mu is held.
func (p *producer) takeStored(part *partition, out *takeOut) {
	for part.stored != nil && len(part.queue) > 0 && part.queue[0].sequence == noSequence {
		b := part.queue[0]
		if p.countContested(&b.frames) == 0 {
			if p.contested == 0 {
				part.stored = nil
			}
			return
		}
		kept, before := p.newBatch(), len(out.seqs)
		for f := range b.all {
			if f.seq <= p.lastContested && p.isStored(part, &f) {
				out.seqs = append(out.seqs, f.seq)
				continue
			}
			s := f.shape()
			copy(kept.reserveRecord(p.client.pool, &s, f.ms), f.raw)
		}
		taken := len(out.seqs) - before
		if taken == 0 {
			p.freeBatch(kept)
			return
		}
		out.payload += b.payload - kept.payload
		part.topic.unacked -= taken
		p.contested -= taken
		kept.sealed, kept.excess = b.sealed, b.excess
		if kept.records > 0 {
			p.replaceFirst(part, kept)
			return
		}
		p.removeBatch(part, 0)
		p.freeBatch(kept)
	}
}

// isStored reports whether an earlier owner has stored the record f in part, and forgets that. p.mu is held.
func (p *producer) isStored(part *partition, f *frame) bool {
	name := p.names.ofFrame(f, f.ms)
	if f.seq <= p.lastCopied {
		return part.stored.takeCopied(name)
	}
	return part.stored.takeStreamed(name) || part.stored.takeStreamed(p.names.ofFrame(f, appendTime))
}

// takeStored takes the waiting records of ready partitions that an earlier owner has stored. It is called just before batches
// are picked: a record may be added to a batch, or a partition be resumed, at any time. producer.mu is held.
func (s *sender) takeStored() {
	p := s.producer
	if !p.recognising {
		return
	}
	for _, part := range s.queue.items[s.queue.head:] {
		if part.stored == nil || part.state != ready || part.sender != s {
			continue
		}
		before := len(s.taken.seqs)
		if p.takeStored(part, &s.taken); len(part.queue) == 0 {
			part.state = idle
		}
		if seqs := s.taken.seqs[before:]; p.cfg.Delivered != nil && len(seqs) > 0 {
			p.cfg.Delivered(sink.Delivery{Topic: part.topic.name, Partition: part.id, Offset: -1, Broker: s.addr, Seqs: seqs})
		}
	}
}

// acknowledgeTaken acknowledges the records of takeStored.
func (s *sender) acknowledgeTaken() {
	p, out := s.producer, s.taken
	if len(out.seqs) == 0 {
		return
	}
	s.taken = takeOut{}
	p.reportOutcomes(out.seqs, nil) // before they leave the window: see handleAnswer
	p.mu.Lock()
	p.releaseWindow(len(out.seqs), out.payload)
	p.stopRunIfDone()
	p.mu.Unlock()
	signal(p.windowFreed)
	signal(s.wake) // as after a response
}
