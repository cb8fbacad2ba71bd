package inbox

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// failure decides what follows the failed attempt at e.
func (p *Processor) failure(e Event, cause error) Failure {
	f := Failure{Event: e, Err: cause}
	_, permanent := errors.AsType[*permanentError](cause)
	if permanent || e.Attempt > len(p.cfg.RetryDelays) {
		f.Parked = true
		return f
	}
	if after, ok := errors.AsType[*retryAfterError](cause); ok {
		f.RetryIn = after.delay
	} else {
		f.RetryIn = rand.N(p.cfg.RetryDelays[e.Attempt-1] + 1)
	}
	return f
}

// report logs, counts and passes on a failure that is committed.
func (p *Processor) report(ctx context.Context, f Failure) {
	attrs := append(p.describeEvent(&f.Event), slog.Any("err", f.Err))
	if f.Parked {
		p.stats.count(f.Event.Type, func(s *TypeStat) { s.Parked++ })
		p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "inbox: event parked", attrs...)
	} else {
		attrs = append(attrs, slog.Duration("retry_in", f.RetryIn.Round(time.Millisecond)))
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inbox: attempt failed", attrs...)
	}
	p.cfg.OnFailure(ctx, f)
}

func (p *Processor) describeEvent(e *Event) []slog.Attr {
	return []slog.Attr{
		slog.String("consumer", p.cfg.Consumer), slog.String("type", e.Type), slog.String("id", e.ID.String()),
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int64("offset", e.Offset),
		slog.Int("attempt", e.Attempt),
	}
}
