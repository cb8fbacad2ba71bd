package kafka

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// lookUp finds the leaders of parts and the partitions of topics, and resumes those that it has found. It
// schedules a retry for the others.
func (p *producer) lookUp(ctx context.Context, parts []*partition, topics []*topic) {
	start := time.Now()
	defer p.beginErrand("a request for metadata")()
	parts = p.followHints(ctx, parts)
	p.askElsewhere(ctx, parts, topics)
	unknown, unlimited := p.staleTopics(parts, topics)
	err := p.client.cluster.refresh(ctx, unknown)
	if err == nil {
		err = p.createMissing(ctx, unknown)
	}
	if err == nil {
		err = p.client.cluster.readLimits(ctx, unlimited)
	}
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	jitter := rand.Float64()
	for _, part := range parts {
		if part.state == awaitingLeader {
			p.placePartition(ctx, part, err, start, jitter)
		}
	}
	for _, t := range topics {
		p.resumeTopic(ctx, t, err, start, jitter)
	}
	for _, name := range unknown {
		if t := p.topics[name]; err == nil && t != nil && t.parts != nil {
			p.applyMetadata(ctx, t)
		}
	}
	p.unlockAndReport()
}

// askElsewhere makes the look-up of parts and topics use another broker if earlier ones did not help.
func (p *producer) askElsewhere(ctx context.Context, parts []*partition, topics []*topic) {
	p.mu.Lock()
	attempts := 0
	for _, part := range parts {
		attempts = max(attempts, part.attempts)
	}
	for _, t := range topics {
		attempts = max(attempts, t.attempts)
	}
	silent := p.unansweredSince()
	p.mu.Unlock()
	if asksElsewhere(attempts) {
		p.client.control.askAnother(ctx, p.client.cluster.addresses(silent))
	}
}

// followHints assigns those of parts whose leader the last response named, and returns the others.
func (p *producer) followHints(ctx context.Context, parts []*partition) []*partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(parts, func(part *partition) bool {
		leader := part.hintedLeader
		part.hintedLeader = noLeader
		if leader == noLeader || part.state != awaitingLeader || p.client.cluster.address(leader) == "" {
			return false
		}
		p.assignSender(ctx, part, leader)
		return true
	})
}

// staleTopics returns the topics whose metadata, and those whose limits, must be requested. If a broker cannot be
// reached, these are all topics, because its partitions will get other leaders.
func (p *producer) staleTopics(parts []*partition, topics []*topic) (metadata, limits []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[string]struct{})
	everything := false
	for _, part := range parts {
		names[part.topic.name] = struct{}{}
		everything = everything || !part.silentSince.IsZero()
	}
	for name, t := range p.topics {
		if everything && t.parts != nil {
			names[name] = struct{}{}
		}
	}
	for _, t := range topics {
		info := p.client.cluster.topic(t.name)
		if info.leaders == nil || t.metadataStale || t.attempts > 0 {
			names[t.name] = struct{}{}
		}
		if info.limit == 0 || t.metadataStale {
			limits = append(limits, t.name)
		}
	}
	for name := range names {
		metadata = append(metadata, name)
	}
	slices.Sort(metadata)
	return metadata, limits
}

// createMissing creates the missing ones of the named topics, if that is configured, and looks them up again.
func (p *producer) createMissing(ctx context.Context, names []string) error {
	if p.client.cfg.CreateTopics == nil {
		return nil
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return p.client.cluster.topic(name).err != sarama.ErrUnknownTopicOrPartition
	})
	if len(names) == 0 {
		return nil
	}
	failed, err := p.client.cluster.createConfigured(ctx, names)
	if err != nil {
		return err
	}
	p.mu.Lock()
	for _, name := range names {
		p.topics[name].notCreated = failed[name]
		p.logCreation(name, failed[name])
	}
	p.mu.Unlock()
	return p.client.cluster.refresh(ctx, names)
}

// logCreation logs, once, whether a topic was created. The topic may seem to be missing again until all brokers
// know it. p.mu is held.
func (p *producer) logCreation(name string, cause error) {
	t := p.topics[name]
	switch {
	case cause != nil && !t.errorLogged:
		t.errorLogged, t.recoveryUnlogged = true, true
		p.logLater(func(ctx context.Context) {
			p.log.ErrorContext(ctx, "topic not created, retrying", slog.String("topic", name), slog.Any("err", cause))
		})
	case cause == nil && !t.creationLogged:
		t.creationLogged = true
		p.logLater(func(ctx context.Context) {
			p.log.InfoContext(ctx, "topic created", slog.String("topic", name))
		})
	}
}

// placePartition assigns part to the sender of its leader, or schedules a retry. p.mu is held.
func (p *producer) placePartition(ctx context.Context, part *partition, err error, start time.Time, jitter float64) {
	info := p.client.cluster.topic(part.topic.name)
	switch {
	case err != nil:
	case info.err != sarama.ErrNoError:
		err = part.topic.errorOf(info.err)
		p.logTopicError(part.topic, info.err)
	case int(part.id) >= len(info.leaders):
		err = errorOf(sarama.ErrUnknownTopicOrPartition)
		if part.topic.resizeTo == 0 { // otherwise unassignRecords takes its records
			p.logTopicError(part.topic, sarama.ErrUnknownTopicOrPartition)
		}
	case info.leaders[part.id].node == noLeader:
		err = errorOf(sarama.ErrLeaderNotAvailable)
	default:
		p.assignSender(ctx, part, info.leaders[part.id].node)
		return
	}
	part.recordFailure(err, start, time.Now(), jitter)
	p.client.counters.recordError(err.Error())
}

// errorOf returns why records for the topic have to wait, from the error of its look-up.
func (t *topic) errorOf(k sarama.KError) error {
	if k == sarama.ErrUnknownTopicOrPartition && t.notCreated != nil {
		return fmt.Errorf("the topic cannot be created: %w", t.notCreated)
	}
	return errorOf(k)
}

// assignSender adds a partition that awaits its leader to the queue of the sender of node. p.mu is held.
func (p *producer) assignSender(ctx context.Context, part *partition, node int32) {
	s := p.senderFor(ctx, node, part)
	if part.sender != s {
		part.sender, part.silentSince = s, time.Time{}
	}
	if part.attempts == 0 {
		delete(p.retrying, part)
	}
	p.makeReady(part)
	signal(part.sender.wake)
}

// resumeTopic assigns the records of a topic that was looked up, or schedules a retry. p.mu is held.
func (p *producer) resumeTopic(ctx context.Context, t *topic, err error, start time.Time, jitter float64) {
	info := p.client.cluster.topic(t.name)
	switch {
	case err != nil:
	case info.err == sarama.ErrInvalidTopic:
		p.rejectUnassigned(t, errorOf(info.err))
		return
	case info.writeError() != sarama.ErrNoError:
		err = t.errorOf(info.writeError())
		if p.givesUp(t, info) {
			p.rejectUnassigned(t, err)
			p.forgetTopic(t)
			return
		}
		p.logTopicError(t, info.writeError())
	case len(info.leaders) == 0:
		err = errorOf(sarama.ErrLeaderNotAvailable)
	}
	if err != nil {
		t.recordFailure(err, start, time.Now(), jitter)
		p.client.counters.recordError(err.Error())
		return
	}
	if t.attempts > 0 {
		signal(p.wakeMonitor)
	}
	t.retryState, t.missing, t.errorLogged, t.metadataStale, t.notCreated = retryState{}, missingState{}, false, false, nil
	t.setLimit(info, p.compresses())
	if t.parts == nil {
		t.counters = p.client.counters.topic(t.name)
		t.addPartitions(len(info.leaders))
		p.partitionsAdded(len(t.parts))
		t.id = info.id
		t.stickyPartition = rand.Int32N(int32(len(t.parts)))
	}
	p.applyMetadata(ctx, t)
	if t.resizeTo > 0 && t.drained() {
		p.resizeTopic(t)
		p.applyMetadata(ctx, t)
	}
	if t.resizeTo == 0 {
		t.resolving = false
		delete(p.unresolved, t)
		p.assignRecords(t)
	}
}

// applyMetadata assigns the partitions of t to the senders of their leaders, and follows their number. p.mu is
// held.
func (p *producer) applyMetadata(ctx context.Context, t *topic) {
	info := p.client.cluster.topic(t.name)
	if info.err != sarama.ErrNoError {
		return
	}
	for i, part := range t.parts {
		if i >= len(info.leaders) || info.leaders[i].node == noLeader {
			continue
		}
		s := p.senderFor(ctx, info.leaders[i].node, part)
		if part.sender == s {
			continue
		}
		switch part.state {
		case idle, unresumed:
			part.sender = s
		case ready, awaitingLeader: // the old sender skips it
			p.assignSender(ctx, part, info.leaders[i].node)
		case inFlight: // the response will name the leader
		}
	}
	p.followPartitionCount(t, info)
}

// assignRecords moves the unassigned records of t to their partitions. p.mu is held.
func (p *producer) assignRecords(t *topic) {
	unassigned, rejected := t.unassigned, false
	t.unassigned = frames{}
	for _, chunk := range unassigned.chunks {
		for rest := chunk; len(rest) > 0; {
			var f frame
			f, rest = readFrame(rest)
			s := f.shape()
			switch {
			case f.seq > p.lastSeq:
				p.releaseWindow(1, s.payloadSize())
			case rejected && p.divertFrame(t, &f, f.partition): // the records before it have their partitions already
			case t.acceptsRecord(&s, f.partition, p.compresses()):
				part := p.choosePartition(t, f.key, f.partition, &s, f.ms)
				copy(p.reserveRecord(part, &s, f.ms), f.raw)
			case p.rejectInTurn(t, &f):
			default:
				p.releaseWindow(1, s.payloadSize())
				p.rejectRecord(t, max(f.partition, sink.AnyPartition), nil, &f, t.rejectReason(&s))
				rejected = true
			}
		}
		p.client.pool.put(chunk)
	}
	p.wakeAll()
}

// followPartitionCount starts to change the number of partitions of t to that of info. Keys then map to other
// partitions, so the old number stays in use until t is drained.
//
// The number of partitions only grows. A smaller number means that the topic was re-created, or that the broker
// does not know the new partitions yet; the topic id tells which (KIP-516). Brokers before 2.8 send no id;
// there, records for a missing partition wait for the next producer. p.mu is held.
func (p *producer) followPartitionCount(t *topic, info topicInfo) {
	none := sarama.Uuid{}
	from, to := len(t.parts), len(info.leaders)
	if to == 0 {
		return // not created yet
	}
	recreated := info.id != t.id && info.id != none && t.id != none
	if info.id != none {
		t.id = info.id
	}
	switch {
	case recreated && to == from:
		t.resizeTo = 0
	case to == from, to == t.resizeTo, to < from && !recreated:
		return
	default:
		t.resizeTo = to
		p.resolveTopic(t)
	}
	log := p.log.With(slog.String("topic", t.name), slog.Int("from", from), slog.Int("to", to))
	p.logLater(func(ctx context.Context) {
		if recreated {
			log.WarnContext(ctx, "topic was re-created, its records are gone", slog.String("fix", p.client.adviseGone()))
		} else {
			log.WarnContext(ctx, "topic has more partitions, keys map to other partitions")
		}
	})
}

// drained reports whether t has no unacknowledged record, except in partitions that do not exist any more.
func (t *topic) drained() bool {
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

// resizeTopic changes the number of partitions of t, which must be drained. p.mu is held.
func (p *producer) resizeTopic(t *topic) {
	n := t.resizeTo
	t.resizeTo = 0
	p.partitionsAdded(n - len(t.parts))
	if n > len(t.parts) {
		t.addPartitions(n)
		return
	}
	gone := slices.Clone(t.parts[n:])
	t.parts = slices.Delete(t.parts, n, len(t.parts))
	t.stickyPartition %= int32(n)
	p.unassignRecords(t, gone)
}

// unassignRecords moves the records of partitions that do not exist any more back to the unassigned records of t,
// in the order of Send and before all later ones. For a moment they are in memory twice. p.mu is held.
func (p *producer) unassignRecords(t *topic, gone []*partition) {
	var stranded []frame
	for _, part := range gone {
		for _, b := range part.queue {
			stranded = slices.AppendSeq(stranded, b.all)
		}
	}
	slices.SortFunc(stranded, func(a, b frame) int { return cmp.Compare(a.seq, b.seq) })
	var back frames
	for i := range stranded {
		back.appendFrame(p.client.pool, &stranded[i])
	}
	for _, part := range gone {
		for len(part.queue) > 0 {
			p.removeBatch(part, 0)
		}
		part.state, part.sender = idle, nil // the old sender skips it
		delete(p.retrying, part)
	}
	t.unacked -= back.records
	back.appendFrames(&t.unassigned)
	t.unassigned = back
}
