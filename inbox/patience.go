package inbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// A trouble is a database that cannot be used for a while: one line in the log when it begins, one
// when it is over.
type trouble struct {
	log   *slog.Logger
	times int
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// wait waits for a while, a longer one each time, and returns the cause of ctx if that is done.
func (t *trouble) wait(ctx context.Context, err error) error {
	if t.times == 0 {
		t.log.WarnContext(ctx, "database in trouble, trying again", slog.Any("err", err))
	}
	pause := min(firstPause<<min(t.times, 10), lastPause)
	t.times++
	timer := time.NewTimer(rand.N(pause) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// over says that things work again.
func (t *trouble) over(ctx context.Context) {
	if t.times > 0 {
		t.log.InfoContext(ctx, "database works again", slog.Int("tries", t.times))
	}
	t.times = 0
}

// awaitRoom waits while MaxWaiting events wait.
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

// limit notes how many events wait.
func (p *Processor) limit(ctx context.Context, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := waiting >= p.cfg.MaxWaiting
	switch {
	case full && !p.full:
		p.notFull = make(chan struct{})
		p.cfg.Log.WarnContext(ctx, "too many events wait, no more are taken", slog.Int("waiting", waiting))
	case !full && p.full:
		close(p.notFull)
		p.cfg.Log.InfoContext(ctx, "events are taken again", slog.Int("waiting", waiting))
	}
	p.full = full
}
