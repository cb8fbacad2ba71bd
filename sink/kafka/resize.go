package kafka

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/IBM/sarama"
)

// renumber has t follow the number of partitions that info tells. Records of a key change
// their partition with it, so the old number stays until t is settled.
//
// A topic only ever grows. A smaller number means that it was deleted and created anew, or
// that the broker has not heard of the growth yet: the topic's id tells which (KIP-516).
// Brokers before 2.8 give no id; there, what is for a partition that is gone waits for the
// next session. p.mu is held.
func (p *producer) renumber(t *topic, info topicInfo) {
	none := sarama.Uuid{}
	from, to := len(t.parts), len(info.leaders)
	if to == 0 {
		return // not made yet
	}
	anew := info.id != t.id && info.id != none && t.id != none
	if info.id != none {
		t.id = info.id
	}
	switch {
	case anew && to == from:
		t.resizeTo = 0
	case to == from, to == t.resizeTo, to < from && !anew:
		return
	default:
		t.resizeTo = to
		p.holdFor(t)
	}
	log := p.log.With(slog.String("topic", t.name), slog.Int("from", from), slog.Int("to", to))
	p.note(func(ctx context.Context) {
		if anew {
			log.WarnContext(ctx, "topic was created anew, what it held is gone")
		} else {
			log.WarnContext(ctx, "topic has more partitions, keys will move")
		}
	})
}

// settled reports whether nothing is unacknowledged under the present number of partitions,
// except for what waits for partitions that are gone.
func (t *topic) settled() bool {
	stranded := 0
	for _, part := range t.parts[min(t.resizeTo, len(t.parts)):] {
		if part.inRequest {
			return false
		}
		for _, b := range part.queue {
			stranded += b.records
		}
	}
	return t.unacked == stranded
}

// resize gives t, which is settled, its new number of partitions. p.mu is held.
func (p *producer) resize(t *topic) {
	n := t.resizeTo
	t.resizeTo = 0
	if n > len(t.parts) {
		t.grow(n)
		return
	}
	gone := slices.Clone(t.parts[n:])
	t.parts = slices.Delete(t.parts, n, len(t.parts))
	t.sticky %= int32(n)
	p.recall(t, gone)
}

// recall takes what waits for partitions that are gone back to where it is held for t, in the
// order of Send and before everything that came later. For a moment it is in memory twice.
// p.mu is held.
func (p *producer) recall(t *topic, gone []*partition) {
	var stranded []frame
	for _, part := range gone {
		for _, b := range part.queue {
			stranded = slices.AppendSeq(stranded, b.all)
		}
	}
	slices.SortFunc(stranded, func(a, b frame) int { return cmp.Compare(a.seq, b.seq) })
	var back frames
	for i := range stranded {
		s := stranded[i].shape()
		copy(back.room(p.client.pool, &s), stranded[i].raw)
	}
	for _, part := range gone {
		for len(part.queue) > 0 {
			p.removeFirst(part)
		}
		part.state, part.sender = idle, nil // the sender it had passes over it
		delete(p.trouble, part)
	}
	t.unacked -= back.records
	p.memory += back.held
	back.join(&t.held)
	t.held = back
}
