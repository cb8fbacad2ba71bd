package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// refreshEvery is how often metadata is looked at although nothing went wrong: to see that
// a topic has grown.
const refreshEvery = 3 * time.Minute

// stallAfter is how long something may be in trouble before a line is logged.
const stallAfter = 30 * time.Second

// errFinished is the cause with which Run's own work ends.
var errFinished = errors.New("every record has an outcome")

// Run implements [sink.Writer]. It starts one goroutine per connection, and one that asks silent
// brokers why they do not answer.
func (p *producer) Run(ctx context.Context, done func(seqs []uint64, err error)) error {
	run, finish := context.WithCancelCause(ctx)
	p.doneMu.Lock()
	p.done = done
	p.doneMu.Unlock()
	p.mu.Lock()
	p.finish = func() { finish(errFinished) }
	p.gated, p.idTrouble = true, trouble{}
	p.finishIfDone()
	p.mu.Unlock()

	var watch sync.WaitGroup
	watch.Go(func() { p.watch(run) }) // waited for below
	p.manage(run)
	finish(errFinished) // for senders, should ctx have ended
	watch.Wait()

	p.mu.Lock()
	senders := p.senders
	p.mu.Unlock()
	for _, s := range senders {
		<-s.stopped
	}
	j, _ := p.jobs(time.Now())
	for _, note := range j.notes {
		note(ctx)
	}
	return p.conclude(ctx)
}

// conclude gives all memory back and returns what Run returns.
func (p *producer) conclude(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(p.ended)
	left := &sink.UndeliveredError{Records: p.records, Cause: context.Cause(ctx)}
	for _, t := range p.topics {
		for _, part := range t.parts {
			for _, b := range part.queue {
				if b.sent {
					left.Sent += b.records
				}
				b.reset(p.client.pool)
			}
			part.queue = nil
		}
		t.held.release(p.client.pool)
	}
	clear(p.trouble)
	clear(p.holding)
	p.records, p.payload, p.memory = 0, 0, 0
	switch {
	case p.failure != nil:
		return p.failure
	case left.Cause == nil, p.closed && left.Records == 0:
		return nil
	case left.Records == 0:
		return left.Cause
	default:
		return left
	}
}

// report calls done. p.mu is not held.
func (p *producer) report(seqs []uint64, err error) {
	if len(seqs) == 0 {
		return
	}
	p.doneMu.Lock()
	defer p.doneMu.Unlock()
	p.done(seqs, err)
}

// manage does everything that takes a request other than produce, one thing after the
// other, so that no sender ever waits for metadata: it places partitions, looks up topics
// and takes producer ids, and it logs.
func (p *producer) manage(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	for ctx.Err() == nil {
		j, wait := p.jobs(time.Now())
		for _, note := range j.notes {
			note(ctx)
		}
		if time.Since(refreshed) >= refreshEvery {
			refreshed = time.Now()
			p.watchTopics(ctx)
		}
		if j.renew {
			p.renew(ctx)
		}
		if len(j.parts)+len(j.topics) > 0 {
			p.locate(ctx, j.parts, j.topics)
		}
		if !j.empty() {
			continue
		}
		timer.Reset(min(wait, refreshEvery-time.Since(refreshed)))
		select {
		case <-p.attend:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// jobs is what is due.
type jobs struct {
	notes  []func(context.Context)
	renew  bool
	parts  []*partition
	topics []*topic
}

func (j *jobs) empty() bool {
	return !j.renew && len(j.notes)+len(j.parts)+len(j.topics) == 0
}

// jobs returns what is due now and when to look again.
func (p *producer) jobs(now time.Time) (jobs, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := refreshEvery
	due := func(t time.Time) bool {
		d := t.Sub(now)
		if d > 0 {
			wait = min(wait, d)
		}
		return d <= 0
	}
	var j jobs
	if p.gated && p.unanswered == 0 && !p.halted {
		j.renew = due(p.idTrouble.due)
	}
	for part := range p.trouble {
		if part.state == troubled && due(part.due) {
			j.parts = append(j.parts, part)
		}
	}
	for t := range p.holding {
		if (t.resizeTo == 0 || t.recheck || t.settled()) && due(t.due) {
			j.topics = append(j.topics, t)
		}
	}
	j.notes, p.notes = p.notes, nil
	return j, wait
}

// note has a line logged by Run's goroutine: writing a log may block, and the others must
// not. p.mu is held.
func (p *producer) note(line func(context.Context)) {
	p.notes = append(p.notes, line)
	signal(p.attend)
}

// watchTopics looks whether topics have grown.
func (p *producer) watchTopics(ctx context.Context) {
	p.mu.Lock()
	var names []string
	for name, t := range p.topics {
		if t.parts != nil {
			names = append(names, name)
		}
	}
	p.mu.Unlock()
	slices.Sort(names)
	if err := p.client.cluster.refresh(ctx, names); err != nil {
		return // the next look will do
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.update(ctx, p.topics[name])
	}
}
