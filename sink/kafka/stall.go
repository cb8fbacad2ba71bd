package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A stall is the oldest trouble there is.
type stall struct {
	since     time.Time
	reason    string
	topic     string
	partition int32
}

// oldestStall returns what has been in trouble longest. p.mu is held.
func (p *producer) oldestStall(now time.Time) stall {
	var s stall
	older := func(since time.Time) bool {
		return !since.IsZero() && (s.since.IsZero() || since.Before(s.since))
	}
	for node, since := range p.owing() {
		if now.Sub(since) >= silenceAfter && older(since) {
			s = stall{since, p.whySilent(node), "", sink.AnyPartition}
		}
	}
	for part := range p.trouble {
		if older(part.since) {
			s = stall{part.since, part.cause.Error(), part.topic.name, part.id}
		}
	}
	for t := range p.holding {
		if older(t.since) {
			s = stall{t.since, t.cause.Error(), t.name, sink.AnyPartition}
		}
	}
	if older(p.idTrouble.since) {
		s = stall{p.idTrouble.since, p.idTrouble.cause.Error(), "", sink.AnyPartition}
	}
	return s
}

// watchStall logs when a stall has become old, and when the last one is over. It returns how
// long until the first can happen, as far as is known. p.mu is held.
func (p *producer) watchStall(now time.Time, say func(func(context.Context))) time.Duration {
	s := p.oldestStall(now)
	switch lasted := now.Sub(s.since); {
	case s.since.IsZero() && !p.stalled.IsZero():
		after := now.Sub(p.stalled)
		p.stalled = time.Time{}
		say(func(ctx context.Context) {
			p.log.InfoContext(ctx, "sink recovered", slog.Duration("after", after))
		})
	case s.since.IsZero(), !p.stalled.IsZero():
	case lasted < stallAfter:
		return stallAfter - lasted
	default:
		p.stalled = s.since
		attrs := []slog.Attr{slog.String("reason", s.reason), slog.Duration("for", lasted)}
		if s.topic != "" {
			attrs = append(attrs, slog.String("topic", s.topic), slog.Int("partition", int(s.partition)))
		}
		say(func(ctx context.Context) {
			p.log.LogAttrs(ctx, slog.LevelError, "sink stalled", attrs...)
		})
	}
	return stallAfter
}

// stat adds what belongs to p.
func (p *producer) stat(s *sink.Stat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlightRecords = p.records
	s.InFlightBytes = p.payload
	if t := p.oldestStall(time.Now()); !t.since.IsZero() {
		s.StalledSince = t.since
		s.StallReason = t.reason
		if t.topic != "" {
			s.StallReason = "topic " + t.topic + ": " + s.StallReason
		}
	}
}
