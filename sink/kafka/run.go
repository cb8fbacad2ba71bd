package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// refreshEvery is the interval at which metadata is refreshed without an error, to detect new partitions.
const refreshEvery = 3 * time.Minute

// stallAfter is how long a stall may last before it is logged. An election of a leader by itself takes less.
const stallAfter = 5 * time.Second

// errFinished is the cause with which Run ends after all records have an outcome.
var errFinished = errors.New("every record has an outcome")

// Run implements [sink.Writer]. It starts one goroutine per connection, one that renews the identity, and one that diagnoses silent brokers.
func (p *producer) Run(ctx context.Context, done func(seqs []uint64, err error)) error {
	run, finish := context.WithCancelCause(ctx)
	p.doneMu.Lock()
	p.done = done
	p.doneMu.Unlock()
	p.mu.Lock()
	p.stopRun = finish
	p.identityLost, p.identityRetry = true, retryState{}
	p.stopRunIfDone()
	p.mu.Unlock()

	var watch sync.WaitGroup
	watch.Go(func() { p.monitorBrokers(run) }) // waited for below
	watch.Go(func() { p.runOwner(run) })
	p.runControl(run)
	finish(errFinished) // stops the senders
	watch.Wait()

	p.mu.Lock()
	senders := p.senders
	p.mu.Unlock()
	for _, s := range senders {
		<-s.stopped
	}
	j, _ := p.dueJobs(time.Now())
	for _, note := range j.logLines {
		note(ctx)
	}
	return p.finishRun(context.Cause(run))
}

// finishRun releases all memory and returns the result of Run. cause is why Run has ended.
func (p *producer) finishRun(cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(p.ended)
	undelivered := &sink.UndeliveredError{Records: p.inFlightRecords, Cause: cause}
	for _, t := range p.topics {
		for _, part := range t.parts {
			for _, b := range part.queue {
				if b.sent {
					undelivered.Sent += b.records
				}
				b.reset(p.client.pool)
			}
			part.queue = nil
		}
		t.unassigned.release(p.client.pool)
	}
	clear(p.retrying)
	clear(p.unresolved)
	clear(p.unresumed)
	p.inFlightRecords, p.inFlightBytes = 0, 0
	switch {
	case p.failure != nil:
		return p.failure
	case errors.Is(cause, errFinished), p.sendClosed && undelivered.Records == 0:
		return nil
	case undelivered.Records == 0:
		return cause
	default:
		return undelivered
	}
}

// reportOutcomes calls done. p.mu is not held.
func (p *producer) reportOutcomes(seqs []uint64, err error) {
	if len(seqs) == 0 {
		return
	}
	p.doneMu.Lock()
	defer p.doneMu.Unlock()
	p.done(seqs, err)
}

// runControl sends its requests one after the other, so that no sender waits for metadata. It
// finds leaders, looks up topics and writes log lines.
func (p *producer) runControl(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	for ctx.Err() == nil {
		j, wait := p.dueJobs(time.Now())
		for _, note := range j.logLines {
			note(ctx)
		}
		if time.Since(refreshed) >= refreshEvery {
			refreshed = time.Now()
			p.refreshTopics(ctx)
		}
		if len(j.parts)+len(j.topics) > 0 {
			p.lookUp(ctx, j.parts, j.topics)
		}
		if !j.empty() {
			continue
		}
		timer.Reset(min(wait, refreshEvery-time.Since(refreshed)))
		select {
		case <-p.wakeControl:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// jobs are the due tasks of runControl.
type jobs struct {
	logLines []func(context.Context)
	parts    []*partition
	topics   []*topic
}

func (j *jobs) empty() bool {
	return len(j.logLines)+len(j.parts)+len(j.topics) == 0
}

// dueJobs returns the due tasks, and the time until the next call.
func (p *producer) dueJobs(now time.Time) (jobs, time.Duration) {
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
	for part := range p.retrying {
		if part.state == awaitingLeader && due(part.retryAt) {
			j.parts = append(j.parts, part)
		}
	}
	for t := range p.unresolved {
		if (t.resizeTo == 0 || t.metadataStale || t.drained()) && due(t.retryAt) {
			j.topics = append(j.topics, t)
		}
	}
	if d, again := p.shrinkWindow(now); again {
		wait = min(wait, d)
	}
	j.logLines, p.logLines = p.logLines, nil
	return j, wait
}

// logLater makes the goroutine of Run write a log line, because writing may block and the caller must not. p.mu is
// held.
func (p *producer) logLater(line func(context.Context)) {
	p.logLines = append(p.logLines, line)
	signal(p.wakeControl)
}

// refreshTopics detects new partitions of topics.
func (p *producer) refreshTopics(ctx context.Context) {
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
		return // the next refresh is early enough
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.applyMetadata(ctx, p.topics[name])
	}
}
