package kafka

import "github.com/outbox-cdc/outbox-cdc/sink"

// divertRecord returns the record to buffer in place of r, which has the shape s. p.mu is held.
func (p *producer) divertRecord(r *sink.Record, s shape) (*sink.Record, shape) {
	instead := p.cfg.Divert(r)
	if instead == nil {
		return r, s
	}
	instead.Seq = r.Seq
	return instead, shapeOf(instead)
}

// divertWaiting asks Divert about the records of t that were never sent. It is called after a substitute was
// buffered, before any other record is. A batch that was sent has at most one outcome for all its records, and
// no later batch of its partition is sent before that. So no record after a rejected one is in the log yet.
// p.mu is held.
func (p *producer) divertWaiting(t *topic) {
	if p.cfg.Divert == nil || p.failure != nil {
		return
	}
	for _, part := range t.parts {
		for i := 0; i < len(part.queue); {
			if b := part.queue[i]; !b.sent && p.divertFrom(t, &b.frames, part.id) {
				b.measureSize()
				b.sealed = true
				if b.records == 0 {
					p.removeBatch(part, i)
					continue
				}
			}
			i++
		}
		if len(part.queue) == 0 {
			p.makeIdle(part)
		}
	}
	p.divertFrom(t, &t.unassigned, sink.AnyPartition)
}

// divertFrom removes the records of fs that Divert replaces, and buffers the replacements. It reports whether there
// were any. A partition that is not negative is that of fs. p.mu is held.
func (p *producer) divertFrom(t *topic, fs *frames, partition int32) bool {
	diverted := fs.filter(p.client.pool, func(f *frame) bool { return !p.divertFrame(t, f, partition) })
	if partition >= 0 {
		t.unacked -= diverted
	}
	return diverted > 0
}

// divertFrame buffers the record that Divert returns for f, and reports true if there is one. The caller removes f.
// A partition that is not negative is that of f. p.mu is held.
func (p *producer) divertFrame(t *topic, f *frame, partition int32) bool {
	if p.cfg.Divert == nil {
		return false
	}
	r := f.record()
	r.Topic = t.name
	if partition >= 0 {
		r.Partition = partition
	}
	instead := p.cfg.Divert(&r)
	if instead == nil {
		return false
	}
	s := f.shape()
	p.releaseWindow(1, s.payloadSize())
	instead.Seq = f.seq
	s = shapeOf(instead)
	p.bufferRecord(instead, &s)
	return true
}
