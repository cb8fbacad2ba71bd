package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// rejectRecord sends a substitute for the record f, which the caller has removed, and reports true. If there is no
// substitute, it ends the producer: earlier records are still delivered, later ones are dropped unless they are in
// flight, so that no partition has a record after a missing one. p.mu is held; unlockAndReport reports the record.
//
// If f is the first record of a queue, part is its partition, otherwise nil. A substitute for the same topic then takes
// the place of f, so that no later record overtakes it.
func (p *producer) rejectRecord(t *topic, partition int32, part *partition, f *frame, reason error) (substituted bool) {
	s := f.shape()
	r := f.record()
	r.Topic, r.Partition = t.name, partition
	e := &sink.RecordError{
		Seq: f.seq, Topic: t.name, Partition: partition, Key: bytes.Clone(f.key), Headers: cloneHeaders(r.Headers),
		Size: batchOverhead + s.wireSize(0, 0), Limit: t.limit, Reason: reason,
	}
	if code, ok := errors.AsType[*codeError](reason); ok {
		e.Code = code.name
		e.TooLarge = code.code == sarama.ErrMessageSizeTooLarge || code.code == sarama.ErrMessageSetSizeTooLarge
	}
	if t.limitGuessed || e.TooLarge && e.Size <= t.limit { // the topic's was lowered, or is not the configured one
		e.Limit = 0
	}
	if p.cfg.Substitute != nil && !p.halted && f.seq < p.lastSeq {
		if instead := p.cfg.Substitute(&r, e); instead != nil {
			instead.Seq = f.seq
			if part != nil && instead.Topic == t.name {
				p.insertSecond(part, instead)
				return true
			}
			s := shapeOf(instead)
			p.bufferRecord(instead, &s)
			return true
		}
	}
	p.rejected = append(p.rejected, e)
	if p.halted || f.seq >= p.lastSeq {
		return false
	}
	p.failure, p.lastSeq = e, f.seq
	p.dropUnsent()
	p.wakeAll()
	return false
}

// insertSecond buffers r behind the first batch of part, which is about to be removed. p.mu is held.
func (p *producer) insertSecond(part *partition, r *sink.Record) {
	s, ms := shapeOf(r), millis(r.Timestamp)
	b := p.newBatch()
	putFrame(b.reserveRecord(p.client.pool, &s, ms), r, ms)
	b.sealed = true
	p.inFlightRecords++
	p.inFlightBytes += s.payloadSize()
	part.topic.unacked++
	part.queue = slices.Insert(part.queue, 1, b)
}

func cloneHeaders(headers []sink.Header) []sink.Header {
	clones := make([]sink.Header, 0, len(headers))
	for _, h := range headers {
		clones = append(clones, sink.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return clones
}

// rejectUnassigned rejects the unassigned records of t. The first one without a substitute ends the producer, and
// the others are dropped. p.mu is held.
func (p *producer) rejectUnassigned(t *topic, reason error) {
	unassigned := t.unassigned
	t.unassigned = frames{}
	t.resolving, t.retryState = false, retryState{} // the next record starts another look-up
	delete(p.unresolved, t)
	p.releaseWindow(unassigned.records, unassigned.payload)
	for f := range unassigned.all {
		if !p.rejectRecord(t, max(f.partition, sink.AnyPartition), nil, &f, reason) {
			break
		}
	}
	unassigned.release(p.client.pool)
	p.divertWaiting(t)
	p.wakeSenders()
}

// stopSending ends the producer with err: nothing more is sent, and Run waits for the requests in flight. p.mu is
// held.
func (p *producer) stopSending(err error) {
	if p.halted {
		return
	}
	p.failure, p.halted, p.lastSeq = err, true, 0
	p.wakeAll()
}

// wakeAll wakes Send and the senders, and ends Run if it is done. p.mu is held.
func (p *producer) wakeAll() {
	signal(p.windowFreed)
	p.wakeSenders()
	p.stopRunIfDone()
}

// dropUnsent drops every record after p.lastSeq that was never sent. p.mu is held.
func (p *producer) dropUnsent() {
	for _, t := range p.topics {
		p.dropFrames(&t.unassigned, p.lastSeq)
		for _, part := range t.parts {
			part.queue = slices.DeleteFunc(part.queue, func(b *batch) bool {
				if b.sent {
					return false
				}
				n := b.records
				p.dropFrames(&b.frames, p.lastSeq)
				b.measureSize()
				t.unacked -= n - b.records
				return b.records == 0
			})
			if len(part.queue) == 0 {
				p.makeIdle(part)
			}
		}
	}
}

// dropFrames drops the frames of fs with a sequence higher than last. p.mu is held.
func (p *producer) dropFrames(fs *frames, last uint64) {
	before := *fs
	fs.filter(p.client.pool, func(f *frame) bool { return f.seq <= last })
	p.releaseWindow(before.records-fs.records, before.payload-fs.payload)
}

// unlockAndReport unlocks p.mu and reports the records that were rejected while it was held.
func (p *producer) unlockAndReport() {
	rejected := p.rejected
	p.rejected = nil
	p.mu.Unlock()
	for _, e := range rejected {
		p.reportOutcomes([]uint64{e.Seq}, e)
	}
}

// rejectReason returns why t does not accept a record.
func (t *topic) rejectReason(s *shape) error {
	if t.limit < batchOverhead+s.wireSize(0, 0) {
		return errorOf(sarama.ErrMessageSizeTooLarge)
	}
	e := errorOf(sarama.ErrUnknownTopicOrPartition)
	e.detail = fmt.Sprintf("the topic has %d partitions", len(t.parts))
	return e
}

// isolateRecord finds the record because of which the broker rejects b, the first batch of part, by splitting b into
// smaller batches until the record is alone. The broker has stored nothing of b, so the sequences start where those
// of b did. p.mu is held.
func (p *producer) isolateRecord(part *partition, b *batch, sh *sentBatch) {
	part.nextSequence = b.sequence
	if p.failure != nil {
		n := b.records
		b.sent, b.sequence = false, noSequence // it was not stored, so it may be dropped like the others
		p.dropUnsent()
		if b.records < n {
			if len(part.queue) > 0 {
				p.makeReady(part)
			}
			return
		}
	}
	if b.records == 1 {
		p.rejectFirst(part, sh.err)
		return
	}
	if sh.block != nil && sh.block.Err == sarama.ErrMessageSizeTooLarge && !part.topic.resolving {
		// The limit was lowered. Without a new look-up, every batch would be rejected.
		part.topic.metadataStale = true
		p.resolveTopic(part.topic)
	}
	p.client.counters.retries.Add(1)
	p.splitBatch(part, b, splitPoints(b.records, sh))
	p.makeReady(part)
}

// rejectFirst rejects the only record of the first batch of part. The broker has stored nothing of it. p.mu is held.
func (p *producer) rejectFirst(part *partition, reason error) {
	b := part.queue[0]
	part.state = idle
	part.topic.unacked--
	p.releaseWindow(b.records, b.payload)
	for f := range b.all {
		p.rejectRecord(part.topic, part.id, part, &f, reason)
		break
	}
	p.removeBatch(part, 0)
	p.makeIdle(part)
	p.divertWaiting(part.topic)
	if len(part.queue) > 0 {
		p.makeReady(part)
	}
	p.wakeSenders() // a substitute may be for another broker, whose sender is idle
}

// rejectInTurn makes f, an unassigned record that t does not accept, wait behind the earlier records of its partition, if
// there are any. The broker may reject one of them, and the substitute for f must not overtake the one for that. Such
// a record is in a batch of its own, which refuseExcess rejects when it is the first. p.mu is held.
func (p *producer) rejectInTurn(t *topic, f *frame) bool {
	if f.key == nil && f.partition < 0 || !t.hasPartition(f.partition) {
		return false
	}
	s := f.shape()
	part := p.choosePartition(t, f.key, f.partition, &s, f.ms)
	if len(part.queue) == 0 {
		return false
	}
	b := p.newBatch()
	copy(b.reserveRecord(p.client.pool, &s, f.ms), f.raw)
	b.sealed, b.excess = true, true
	t.unacked++
	part.queue = append(part.queue, b)
	return true
}

// refuseExcess rejects the record of b, the first batch of part, if it is still too large, and reports true. p.mu is held.
func (p *producer) refuseExcess(part *partition, b *batch) bool {
	if !b.excess {
		return false
	}
	b.excess = false
	var reason error
	for f := range b.all {
		if s := f.shape(); !part.topic.acceptsRecord(&s, part.id, p.compresses()) {
			reason = part.topic.rejectReason(&s)
		}
	}
	if reason == nil {
		return false
	}
	p.rejectFirst(part, reason)
	signal(p.windowFreed)
	return true
}

// splitPoints returns where to split a batch of n records: around the records that the broker names (KIP-467), or
// in the middle.
func splitPoints(n int, sh *sentBatch) []int {
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

// splitBatch replaces b, the first batch of part, by batches that start at the given records. The copy uses memory
// in addition to the window. p.mu is held.
func (p *producer) splitBatch(part *partition, b *batch, at []int) {
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
		copy(piece.reserveRecord(p.client.pool, &s, f.ms), f.raw)
		i++
	}
	pieces[len(pieces)-1].sealed = true
	p.replaceFirst(part, pieces...)
}

// newBatch returns an empty batch. p.mu is held.
func (p *producer) newBatch() *batch {
	if n := len(p.freeBatches); n > 0 {
		b := p.freeBatches[n-1]
		p.freeBatches = p.freeBatches[:n-1]
		return b
	}
	return new(batch)
}

// freeBatch releases the memory of b. p.mu is held.
func (p *producer) freeBatch(b *batch) {
	b.reset(p.client.pool)
	p.freeBatches = append(p.freeBatches, b)
}

// removeBatch removes the batch at index i of part's queue and releases its memory. p.mu is held.
func (p *producer) removeBatch(part *partition, i int) {
	p.freeBatch(part.queue[i])
	part.queue = slices.Delete(part.queue, i, i+1)
}

// replaceFirst puts batches in place of the first one of part's queue. p.mu is held.
func (p *producer) replaceFirst(part *partition, batches ...*batch) {
	p.removeBatch(part, 0)
	part.queue = slices.Insert(part.queue, 0, batches...)
}

// makeIdle ends the attempts of part, whose queue is empty. p.mu is held.
func (p *producer) makeIdle(part *partition) {
	part.state, part.retryState = idle, retryState{}
	delete(p.retrying, part)
}

// presentWithin is the maximum age of a timestamp that counts as the current time. If a broker rejects such a
// timestamp, its clock is wrong, and it would reject any other one too.
const presentWithin = time.Second

// restampBatch sets the current time as the timestamp of those records of b whose timestamps the broker rejects, and
// resends b. It reports whether there are any. b is the first batch of part, and the broker has stored nothing of
// it. p.mu is held.
func (p *producer) restampBatch(part *partition, b *batch, sh *sentBatch) bool {
	if sh.block == nil || sh.block.Err != sarama.ErrInvalidTimestamp || p.failure != nil {
		return false
	}
	now := time.Now()
	accused := namedRecords(b.records, sh.block)
	stamped := p.newBatch()
	n := 0
	for f := range b.all {
		r, ms := f.record(), f.ms
		if accused[stamped.records] && now.Sub(r.Timestamp).Abs() > presentWithin {
			r.Restamp(now)
			ms = millis(now)
			n++
		}
		s := shapeOf(&r)
		putFrame(stamped.reserveRecord(p.client.pool, &s, ms), &r, ms)
	}
	if n == 0 {
		p.freeBatch(stamped)
		return false
	}
	stamped.sealed = true
	p.inFlightBytes += stamped.payload - b.payload
	part.nextSequence = b.sequence
	p.replaceFirst(part, stamped)
	p.client.counters.retries.Add(1)
	p.client.counters.restamped.Add(int64(n))
	p.logRestamp(part.topic)
	p.makeReady(part)
	return true
}

// namedRecords returns, for each of the n records of a batch, whether the broker rejects it: the response names it
// (KIP-467), or names no record.
func namedRecords(n int, block *sarama.ProduceResponseBlock) []bool {
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

// logRestamp logs, once, that t rejects the timestamps of records. p.mu is held.
func (p *producer) logRestamp(t *topic) {
	if t.restampLogged {
		return
	}
	t.restampLogged = true
	name := t.name
	p.logLater(func(ctx context.Context) {
		p.log.WarnContext(ctx, "topic rejects timestamps of records, they get the current time",
			slog.String("topic", name), slog.String("header", sink.TimestampHeader))
	})
}
