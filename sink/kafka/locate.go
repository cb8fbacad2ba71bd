package kafka

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// locate finds the leaders of parts and the partitions of topics, and lets go on what it has
// found; the rest is due again later.
func (p *producer) locate(ctx context.Context, parts []*partition, topics []*topic) {
	start := time.Now()
	parts = p.follow(ctx, parts)
	unknown, unlimited := p.unknown(parts, topics)
	err := p.client.cluster.refresh(ctx, unknown)
	if err == nil {
		err = p.create(ctx, unknown)
	}
	if err == nil {
		err = p.client.cluster.readLimits(ctx, unlimited)
	}
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	luck := luck()
	for _, part := range parts {
		if part.state == troubled {
			p.place(ctx, part, err, start, luck)
		}
	}
	for _, t := range topics {
		p.consider(ctx, t, err, start, luck)
	}
	for _, name := range unknown {
		if t := p.topics[name]; err == nil && t.parts != nil {
			p.update(ctx, t)
		}
	}
	p.unlock()
}

// follow places those of parts whose leader the last answer has named, and returns the rest.
func (p *producer) follow(ctx context.Context, parts []*partition) []*partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(parts, func(part *partition) bool {
		leader := part.hint
		part.hint = noLeader
		if leader == noLeader || part.state != troubled || p.client.cluster.address(leader) == "" {
			return false
		}
		p.assign(ctx, part, leader)
		return true
	})
}

// unknown returns the topics whose metadata and whose limits have to be asked for. A broker
// that cannot be reached puts every topic in doubt: its partitions will have moved.
func (p *producer) unknown(parts []*partition, topics []*topic) (metadata, limits []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[string]struct{})
	everything := false
	for _, part := range parts {
		names[part.topic.name] = struct{}{}
		everything = everything || !part.silent.IsZero()
	}
	for name, t := range p.topics {
		if everything && t.parts != nil {
			names[name] = struct{}{}
		}
	}
	for _, t := range topics {
		info := p.client.cluster.topic(t.name)
		if info.leaders == nil || t.recheck || t.attempts > 0 {
			names[t.name] = struct{}{}
		}
		if info.limit == 0 || t.recheck {
			limits = append(limits, t.name)
		}
	}
	for name := range names {
		metadata = append(metadata, name)
	}
	slices.Sort(metadata)
	return metadata, limits
}

// create creates those of the named topics that are missing, if that is wanted, and looks
// them up again.
func (p *producer) create(ctx context.Context, names []string) error {
	if p.client.cfg.CreateTopics == nil {
		return nil
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return p.client.cluster.topic(name).err != sarama.ErrUnknownTopicOrPartition
	})
	if len(names) == 0 {
		return nil
	}
	failed, err := p.client.cluster.create(ctx, names)
	if err != nil {
		return err
	}
	p.mu.Lock()
	for _, name := range names {
		p.noteCreation(name, failed[name])
	}
	p.mu.Unlock()
	return p.client.cluster.refresh(ctx, names)
}

// noteCreation logs once how the creation of a topic went; it may take the cluster a while
// to tell everybody. p.mu is held.
func (p *producer) noteCreation(name string, cause error) {
	t := p.topics[name]
	switch {
	case cause != nil && !t.refused:
		t.refused = true
		p.note(func(ctx context.Context) {
			p.log.ErrorContext(ctx, "topic not created, trying on", slog.String("topic", name), slog.Any("err", cause))
		})
	case cause == nil && !t.created:
		t.created = true
		p.note(func(ctx context.Context) {
			p.log.InfoContext(ctx, "topic created", slog.String("topic", name))
		})
	}
}

// place gives part to the sender of its leader, or has it wait on. p.mu is held.
func (p *producer) place(ctx context.Context, part *partition, err error, start time.Time, luck float64) {
	info := p.client.cluster.topic(part.topic.name)
	switch {
	case err != nil:
	case info.err != sarama.ErrNoError:
		err = errorOf(info.err)
		p.complain(part.topic, info.err)
	case int(part.id) >= len(info.leaders):
		err = errorOf(sarama.ErrUnknownTopicOrPartition)
		if part.topic.resizeTo == 0 { // else it only waits for being recalled
			p.complain(part.topic, sarama.ErrUnknownTopicOrPartition)
		}
	case info.leaders[part.id] == noLeader:
		err = errorOf(sarama.ErrLeaderNotAvailable)
	default:
		p.assign(ctx, part, info.leaders[part.id])
		return
	}
	part.struck(err, start, time.Now(), luck)
	p.client.counters.failed(err.Error())
}

// assign gives a troubled partition to the sender of node. p.mu is held.
func (p *producer) assign(ctx context.Context, part *partition, node int32) {
	s := p.senderFor(ctx, node, part)
	if part.sender != s {
		part.sender, part.silent = s, time.Time{}
	}
	if part.attempts == 0 {
		delete(p.trouble, part)
	}
	part.state = ready
	part.sender.list.push(part)
	signal(part.sender.wake)
}

// consider lets a held topic go on, or has it wait. p.mu is held.
func (p *producer) consider(ctx context.Context, t *topic, err error, start time.Time, luck float64) {
	info := p.client.cluster.topic(t.name)
	switch {
	case err != nil:
	case info.err == sarama.ErrInvalidTopic:
		p.rejectHeld(t, errorOf(info.err))
		return
	case info.err != sarama.ErrNoError:
		err = errorOf(info.err)
		p.complain(t, info.err)
	case len(info.leaders) == 0:
		err = errorOf(sarama.ErrLeaderNotAvailable)
	}
	if err != nil {
		t.struck(err, start, time.Now(), luck)
		p.client.counters.failed(err.Error())
		return
	}
	if t.attempts > 0 {
		signal(p.eased)
	}
	t.trouble, t.refused, t.recheck = trouble{}, false, false
	t.setLimit(info, p.compresses())
	if t.parts == nil {
		t.grow(len(info.leaders))
		t.id = info.id
		t.sticky = rand.Int32N(int32(len(t.parts)))
	}
	p.update(ctx, t)
	if t.resizeTo > 0 && t.settled() {
		p.resize(t)
		p.update(ctx, t)
	}
	if t.resizeTo == 0 {
		t.hold = false
		delete(p.holding, t)
		p.distribute(t)
	}
}

// update has t follow what the cluster says of it: where leaders are, and how many
// partitions there are. p.mu is held.
func (p *producer) update(ctx context.Context, t *topic) {
	info := p.client.cluster.topic(t.name)
	if info.err != sarama.ErrNoError {
		return
	}
	for i, part := range t.parts {
		if i >= len(info.leaders) || info.leaders[i] == noLeader {
			continue
		}
		s := p.senderFor(ctx, info.leaders[i], part)
		if part.sender == s {
			continue
		}
		switch part.state {
		case idle:
			part.sender = s
		case ready, troubled: // the old sender passes over it
			p.assign(ctx, part, info.leaders[i])
		case inFlight: // its answer will say so
		}
	}
	p.renumber(t, info)
}

// distribute gives held records to their partitions. p.mu is held.
func (p *producer) distribute(t *topic) {
	held := t.held
	t.held = frames{}
	for _, chunk := range held.chunks {
		for rest := chunk; len(rest) > 0; {
			var f frame
			f, rest = readFrame(rest)
			s := f.shape()
			switch {
			case f.seq > p.cut:
				p.forget(1, s.payload())
			case t.fits(&s, f.partition, p.compresses()):
				part := p.choose(t, f.key, f.partition, &s, f.ms)
				copy(p.enqueue(part, &s, f.ms), f.raw)
			default:
				p.forget(1, s.payload())
				p.reject(t, f.partition, &f, t.unfit(&s))
			}
		}
		p.memory -= cap(chunk)
		p.client.pool.put(chunk)
	}
	p.wind()
}
