package inbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// An outage is a time in which the database cannot be used. It logs one line when it starts and one
// when it ends.
type outage struct {
	log     *slog.Logger
	retries int
}

const (
	minBackOff = 50 * time.Millisecond
	maxBackOff = 5 * time.Second
)

// backOff waits, longer each time. It returns the cause of ctx if ctx is done.
func (o *outage) backOff(ctx context.Context, err error) error {
	if o.retries == 0 {
		o.log.WarnContext(ctx, "inbox: database unavailable, retrying", slog.Any("err", err))
	}
	pause := min(minBackOff<<min(o.retries, 10), maxBackOff)
	o.retries++
	timer := time.NewTimer(rand.N(pause) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *outage) end(ctx context.Context) {
	if o.retries > 0 {
		o.log.InfoContext(ctx, "inbox: database available again", slog.Int("retries", o.retries))
	}
	o.retries = 0
}

// awaitRoom blocks while MaxWaiting events wait.
func (p *Processor) awaitRoom(ctx context.Context) error {
	p.mu.Lock()
	room := p.notFull
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// limit opens or closes the way for new events, by the number of those that wait.
func (p *Processor) limit(ctx context.Context, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := waiting >= p.cfg.MaxWaiting
	switch {
	case full && !p.full:
		p.notFull = make(chan struct{})
		p.cfg.Logger.WarnContext(ctx, "inbox: too many events wait, consuming paused",
			slog.String("consumer", p.cfg.Consumer), slog.Int("waiting", waiting), slog.Int("max_waiting", p.cfg.MaxWaiting))
	case !full && p.full:
		close(p.notFull)
		p.cfg.Logger.InfoContext(ctx, "inbox: consuming resumed",
			slog.String("consumer", p.cfg.Consumer), slog.Int("waiting", waiting))
	}
	p.full = full
}
