package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An earlier owner may have stored contested records, and requests of it may still be on the way. So as long as there are such
// records, a partition is resumed before the first record is sent to it: an empty transaction of our epoch is aborted there, whose
// marker shuts out the earlier owner; the records of the relay before the marker are read; and the contested records that are among
// them are acknowledged instead of being sent. Later records are sent without any of that.
//
// Markers: KIP-98. A partition rejects a producer epoch lower than that of the last marker: ProducerAppendInfo of the broker.

const (
	// gatherTime is how long contested records are gathered, so that one transaction resumes many partitions.
	gatherTime = 10 * time.Millisecond

	// stuckAfter is how long a partition waits for its marker. The coordinator begins no other transaction before it has
	// written all markers of the last one, and it cannot write one while the partition has no leader. A busy broker may take
	// many seconds for a thousand markers, and a cluster for a new leader.
	stuckAfter = 30 * time.Second
)

// mustResume reports whether part is to be resumed before its next record is sent, whatever that is: as long as a contested record
// has no outcome, it may be rejected, and its substitute come to part behind records that are not contested. p.mu is held.
func (p *producer) mustResume(part *partition) bool { return p.contested > 0 && !part.resumed }

// awaitResume makes runOwner resume part. p.mu is held.
func (p *producer) awaitResume(part *partition) {
	part.state = unresumed
	p.unresumed[part] = struct{}{}
	signal(p.wakeOwner)
}

// runOwner renews the identity and resumes partitions until ctx ends: one after the other, because both use the coordinator.
func (p *producer) runOwner(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		renew, parts, wait := p.ownerJobs(time.Now())
		switch {
		case renew:
			p.renewIdentity(ctx)
			continue
		case len(parts) > 0:
			p.resume(ctx, parts)
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.wakeOwner:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// ownerJobs returns what runOwner has to do now, or after how long to ask again.
func (p *producer) ownerJobs(now time.Time) (renew bool, parts []*partition, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.halted:
	case p.identityLost:
		if p.requestsInFlight > 0 {
			break // handleAnswer wakes
		}
		if d := p.identityRetry.retryAt.Sub(now); d > 0 {
			return false, nil, d
		}
		return true, nil, 0
	case len(p.unresumed) > 0:
		if p.gatheredAt.IsZero() {
			p.gatheredAt = now.Add(gatherTime)
		}
		if d := p.gatheredAt.Sub(now); d > 0 {
			return false, nil, d
		}
		for part := range p.unresumed {
			if part.state == unresumed && len(part.queue) > 0 {
				parts = append(parts, part)
			} else {
				delete(p.unresumed, part)
			}
		}
		p.gatheredAt = time.Time{}
		return false, parts, refreshEvery
	}
	return false, nil, refreshEvery
}

// A round resumes some partitions together.
type round struct {
	producer *producer
	owner    identity
	ids      map[int64]bool // producer ids of the relay
	began    time.Time
	waiting  map[topicPartition]*partition
	since    map[topicPartition]time.Time // see tailReader
	begins   map[topicPartition]int64     // the first offsets of the partitions
	ends     map[topicPartition]int64     // the ends of the partitions before the transaction
	links    map[string]*link             // to the leaders, by address
	found    int                          // records of earlier owners; protected by producer.mu
}

// resume resumes parts. Those that have no leader, or fail, are tried again later.
func (p *producer) resume(ctx context.Context, parts []*partition) {
	defer p.beginErrand("a take-over of partitions")()
	newest, err := p.ownership.lock(ctx)
	if err != nil {
		return
	}
	defer p.ownership.unlock()
	r := &round{
		producer: p, owner: newest, ids: maps.Clone(p.ownership.ids), began: time.Now(), waiting: make(map[topicPartition]*partition), since: make(map[topicPartition]time.Time),
		begins: make(map[topicPartition]int64), ends: make(map[topicPartition]int64), links: make(map[string]*link),
	}
	defer r.hangUp()
	p.mu.Lock()
	if newest != p.identity { // another producer of the owner has raised it
		p.identityLost = true
		p.mu.Unlock()
		return
	}
	for _, part := range parts {
		at := topicPartition{part.topic.name, part.id}
		r.waiting[at] = part
		r.since[at] = p.storedSince(part)
	}
	p.mu.Unlock()
	err = r.run(ctx)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.unlockAndReport()
	if errors.Is(err, sink.ErrSuperseded) {
		p.stopSending(err)
		return
	}
	p.retryRound(r, err)
	if n := len(parts) - len(r.waiting); n > 0 {
		found, took := r.found, time.Since(r.began)
		p.logLater(func(ctx context.Context) {
			p.log.InfoContext(ctx, "partitions taken over", slog.Int("partitions", n), slog.Int("epoch", int(r.owner.epoch)),
				slog.Int("records_read", found), slog.String("took", took.Round(time.Millisecond).String()))
		})
	}
}

// storedSince returns how old the batches may be that have the contested records of part. Those that wait are not all: a record
// may be rejected later, and its substitute belong to part. p.mu is held.
func (p *producer) storedSince(part *partition) time.Time {
	b := part.queue[0]
	if first, _ := frameSeq(b.chunks[0]); first <= p.lastCopied {
		return p.cfg.CopiedSince
	}
	since := time.UnixMilli(b.firstMS)
	for _, t := range []time.Time{p.contestedFrom, p.cfg.ContestedSince} { // the latter for rows whose timestamp is the time of sending
		if !t.IsZero() && t.Before(since) {
			since = t
		}
	}
	return since.Add(-tailAge)
}

// retryRound has the leaders of the partitions looked up that r has not resumed. Then they are resumed again. p.mu is held.
func (p *producer) retryRound(r *round, err error) {
	if err == nil {
		err = errorOf(sarama.ErrLeaderNotAvailable)
	}
	jitter := rand.Float64()
	for _, part := range r.waiting {
		delete(p.unresumed, part)
		if part.state == unresumed {
			p.retryBatch(part, retriable, err, r.began, jitter)
		}
	}
}

// run resumes the waiting partitions that have a leader. An error is about those that are still waiting then.
func (r *round) run(ctx context.Context) error {
	topics := make(map[string]struct{})
	for at := range r.waiting {
		topics[at.topic] = struct{}{}
	}
	if err := r.producer.client.cluster.refresh(ctx, slices.Sorted(maps.Keys(topics))); err != nil {
		return err
	}
	groups := r.byLeader()
	var failed error
	for addr, parts := range groups {
		if err := r.contact(ctx, addr, parts); err != nil {
			failed = err
		}
	}
	if err := r.fence(ctx); err != nil {
		return err
	}
	errs := make(chan error, len(groups))
	var readers sync.WaitGroup
	for addr, parts := range groups {
		if l := r.links[addr]; l != nil {
			readers.Go(func() { errs <- r.readTails(l, parts) })
		}
	}
	readers.Wait()
	close(errs)
	for err := range errs {
		if failed == nil || errors.Is(err, sink.ErrSuperseded) {
			failed = err
		}
	}
	return failed
}

// contact connects to a leader and reads where its partitions begin and end.
func (r *round) contact(ctx context.Context, addr string, parts []topicPartition) error {
	connector := r.producer.client.connector
	l, err := connector.connect(ctx, addr, controlTimeout)
	if err != nil {
		return err
	}
	l.conn.closeWith(ctx)
	begins, err := offsetsAt(l, parts, sarama.OffsetOldest, sarama.ReadUncommitted)
	var ends []int64
	if err == nil {
		ends, err = offsetsAt(l, parts, sarama.OffsetNewest, sarama.ReadUncommitted)
	}
	if err != nil {
		_ = l.Close()
		return requestError(addr, err, connector.sasl != nil)
	}
	r.links[addr] = l
	for i, at := range parts {
		r.begins[at], r.ends[at] = begins[i], ends[i]
	}
	return nil
}

// hangUp closes the connections.
func (r *round) hangUp() {
	for _, l := range r.links {
		_ = l.Close() // its error does not matter
	}
}

// byLeader returns the waiting partitions by the address of their leader.
func (r *round) byLeader() map[string][]topicPartition {
	cluster := r.producer.client.cluster
	groups := make(map[string][]topicPartition)
	for at := range r.waiting {
		info := cluster.topic(at.topic)
		if info.leaderError(at.id) != nil {
			continue // it is looked up again with the next round
		}
		addr := cluster.address(info.leaders[at.id].node)
		groups[addr] = append(groups[addr], at)
	}
	return groups
}

// fence has the coordinator write markers to the partitions of r.ends. It lets those go on that cannot have one.
func (r *round) fence(ctx context.Context) error {
	c := &r.producer.ownership.coordinator
	for len(r.ends) > 0 {
		var refused map[topicPartition]error
		err := c.whileConcurrent(ctx, r.began.Add(stuckAfter), func() (err error) {
			refused, err = c.addPartitions(ctx, r.owner, slices.Collect(maps.Keys(r.ends)))
			return err
		})
		switch {
		case isConcurrent(err):
			stuck := make(map[topicPartition]error)
			for at := range r.ends {
				stuck[at] = err
			}
			r.giveUp(stuck)
		case err != nil:
			return c.ownershipError(err)
		case len(refused) == 0:
			return c.ownershipError(c.abortTransaction(ctx, r.owner))
		default:
			maps.DeleteFunc(refused, func(at topicPartition, reason error) bool {
				missing := !isDenied(reason)
				if missing { // the topic may be there again later
					delete(r.ends, at)
				}
				return missing
			})
			r.giveUp(refused)
		}
	}
	return nil
}

// giveUp lets partitions go on that cannot be resumed.
func (r *round) giveUp(parts map[topicPartition]error) {
	for at, reason := range parts {
		delete(r.ends, at)
		r.finish(at, &tailReader{}, reason)
	}
}

// isDenied reports whether a right is missing.
func isDenied(err error) bool {
	code, ok := errors.AsType[*codeError](err)
	return ok && classify(code.code) == accessDenied
}

// readTails reads the ends of partitions with the same leader, and lets each go on as soon as its end is read.
func (r *round) readTails(l *link, parts []topicPartition) error {
	p := r.producer
	deadline := time.Now().Add(stuckAfter)
	for _, at := range parts {
		end, ok := r.ends[at]
		if !ok {
			continue
		}
		t := &tailReader{
			link: l, part: at, owner: r.owner, ids: r.ids, since: r.since[at], names: &p.names, coordinator: &p.ownership.coordinator,
		}
		err := t.readToMarker(end, deadline)
		if err == nil {
			err = t.readBack(r.begins[at], end)
		}
		if err != nil && !isDenied(err) && !errors.Is(err, errMarkerMissing) {
			return fmt.Errorf("topic %s, partition %d: %w", at.topic, at.id, err)
		}
		r.finish(at, t, err)
	}
	return nil
}

// finish lets a partition go on. missed says why not all records of earlier owners are known, or that no marker shuts them
// out.
func (r *round) finish(at topicPartition, t *tailReader, missed error) {
	if missed == nil && t.cut {
		missed = fmt.Errorf("the last records of the relay are not among the last %d MiB", tailBytes>>20)
	}
	p := r.producer
	p.mu.Lock()
	defer p.unlockAndReport()
	part := r.waiting[at]
	delete(r.waiting, at)
	delete(p.unresumed, part)
	part.resumed = true
	if n := len(t.found.names); n > 0 {
		t.found.sort()
		part.stored = &t.found
		p.recognising = true
		r.found += n
	}
	if missed != nil {
		p.client.counters.renewals.Add(1)
		p.logLater(func(ctx context.Context) {
			p.log.WarnContext(ctx, "records of an earlier relay may be duplicated", slog.String("topic", at.topic),
				slog.Int("partition", int(at.id)), slog.Any("reason", missed))
		})
	}
	if part.state == unresumed {
		part.state = idle
		if len(part.queue) > 0 {
			p.makeReady(part)
		}
		if part.sender != nil {
			signal(part.sender.wake)
		}
	}
}
