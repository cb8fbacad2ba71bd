package sink

import (
	"context"
	"log/slog"
	"time"
)

// A stall is the oldest trouble there is.
type stall struct {
	since     time.Time
	cause     error
	topic     string
	partition int32
}

// oldestTrouble returns what has been in trouble longest. p.mu is held.
func (p *Producer) oldestTrouble() stall {
	var s stall
	older := func(t *trouble) bool {
		return t.attempts > 0 && (s.since.IsZero() || t.since.Before(s.since))
	}
	for part := range p.trouble {
		if older(&part.trouble) {
			s = stall{part.since, part.cause, part.topic.name, part.id}
		}
	}
	for t := range p.holding {
		if older(&t.trouble) {
			s = stall{t.since, t.cause, t.name, AnyPartition}
		}
	}
	if older(&p.idTrouble) {
		s = stall{p.idTrouble.since, p.idTrouble.cause, "", AnyPartition}
	}
	return s
}

// watchStall logs when a trouble has become old, and when the last one is over. It returns
// how long until the first can happen, or zero if it cannot. p.mu is held.
func (p *Producer) watchStall(now time.Time) time.Duration {
	s := p.oldestTrouble()
	switch {
	case s.since.IsZero() && p.stalled:
		p.stalled = false
		p.note(func(ctx context.Context) { p.log.InfoContext(ctx, "sink recovered") })
	case s.since.IsZero(), p.stalled:
	case now.Sub(s.since) < stallAfter:
		return stallAfter - now.Sub(s.since)
	default:
		p.stalled = true
		p.note(func(ctx context.Context) {
			p.log.ErrorContext(ctx, "sink stalled", slog.Any("reason", s.cause), slog.String("topic", s.topic),
				slog.Int("partition", int(s.partition)), slog.Duration("for", now.Sub(s.since)))
		})
	}
	return 0
}

// stat adds what belongs to p.
func (p *Producer) stat(s *Stat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlightRecords = p.records
	s.InFlightBytes = p.payload
	if t := p.oldestTrouble(); !t.since.IsZero() {
		s.StalledSince = t.since
		s.StallReason = t.cause.Error()
		if t.topic != "" {
			s.StallReason = "topic " + t.topic + ": " + s.StallReason
		}
	}
}
