package kafka

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// silenceAfter is how long a broker may not respond before it counts as silent and is probed. It
	// is well below readTimeout, after which a request fails.
	silenceAfter = 5 * time.Second

	// probeEvery is the time between two probes of a silent broker.
	probeEvery = 5 * time.Second

	// relogAfter is how long the same reason of the same broker is not logged again. A broker that
	// takes six seconds for each request is silent again and again.
	relogAfter = time.Minute

	// probePartitions limits the number of partitions of a probe.
	probePartitions = 20
)

// A silence is the state of a broker that does not respond: to a request or a new connection, or to the last of
// these, which failed and will be retried. Its fields are protected by producer.mu.
type silence struct {
	node          int32
	since         time.Time // zero: it is over, and remembered for relogAfter
	probedAt      time.Time
	finding       finding // of the last probe; zero: none yet
	logged        bool    // this silence was logged
	loggedFinding finding // last logged finding
	loggedAt      time.Time
}

func (s *silence) ended() bool { return s.since.IsZero() }

// monitorBrokers probes silent brokers, and logs silences and stalls, until ctx ends. It has its own goroutine,
// because the others may wait for those brokers.
func (p *producer) monitorBrokers(ctx context.Context) {
	timer := time.NewTimer(silenceAfter)
	defer timer.Stop()
	for {
		select {
		case <-p.wakeMonitor:
		case <-timer.C:
		case <-ctx.Done():
			p.checkHealth(ctx) // logs what has ended
			return
		}
		questions, wait := p.checkHealth(ctx)
		var round sync.WaitGroup
		for _, q := range questions {
			round.Go(func() { p.runProbe(ctx, q) })
		}
		round.Wait()
		if len(questions) > 0 {
			wait = 0
		}
		timer.Reset(wait)
	}
}

// checkHealth logs stalls and silences that have started or ended. It returns the due probes, and the time until
// the next call.
func (p *producer) checkHealth(ctx context.Context) (questions []probe, wait time.Duration) {
	var lines []func(context.Context)
	logLine := func(line func(context.Context)) { lines = append(lines, line) }
	p.mu.Lock()
	now := time.Now()
	questions, wait = p.checkSilences(now, logLine)
	if len(questions) == 0 { // otherwise the caller comes back with the findings, which may be the reason of the stall
		wait = min(wait, p.logStall(now, logLine))
	}
	p.mu.Unlock()
	for _, line := range lines {
		line(ctx)
	}
	return questions, wait
}

// unansweredSince returns, by node, since when brokers have not responded. p.mu is held.
func (p *producer) unansweredSince() map[int32]time.Time {
	owing := make(map[int32]time.Time)
	note := func(s *sender, since time.Time) {
		if since.IsZero() {
			return
		}
		if t, ok := owing[s.node]; !ok || since.Before(t) {
			owing[s.node] = since
		}
	}
	for _, s := range p.senders {
		note(s, s.waitingSince)
	}
	for part := range p.retrying {
		if part.sender != nil {
			note(part.sender, part.silentSince)
		}
	}
	return owing
}

// checkSilences finds silences that have started or ended. It returns the due probes, and the time until the next
// one can be due. p.mu is held.
func (p *producer) checkSilences(now time.Time, logLine func(func(context.Context))) (questions []probe, wait time.Duration) {
	wait = silenceAfter
	owing := p.unansweredSince()
	maps.DeleteFunc(owing, func(_ int32, since time.Time) bool {
		remaining := silenceAfter - now.Sub(since)
		if remaining > 0 {
			wait = min(wait, remaining)
		}
		return remaining > 0
	})
	for node, since := range owing {
		s := p.silences[node]
		if s == nil {
			s = &silence{node: node}
			p.silences[node] = s
		}
		if s.ended() {
			s.since, s.finding, s.logged = since, finding{}, false
		}
		if remaining := probeEvery - now.Sub(s.probedAt); remaining > 0 {
			wait = min(wait, remaining)
			continue
		}
		s.probedAt = now
		questions = append(questions, p.newProbe(node, now, owing))
	}
	for node, s := range p.silences {
		if _, ok := owing[node]; ok {
			continue
		}
		if s.logged && !s.ended() {
			logLine(p.silenceEndLine(s, now))
		}
		s.since = time.Time{}
		if now.Sub(s.loggedAt) >= relogAfter {
			delete(p.silences, node)
		}
	}
	return questions, wait
}

// silenceEndLine returns the log line for the end of s. p.mu is held.
func (p *producer) silenceEndLine(s *silence, now time.Time) func(context.Context) {
	answered := false
	for _, sd := range p.senders {
		answered = answered || sd.node == s.node && sd.answeredAt.After(s.since)
	}
	log := p.log.With(slog.Int("broker", int(s.node)), slog.String("addr", p.client.cluster.address(s.node)),
		slog.Duration("after", now.Sub(s.since)))
	return func(ctx context.Context) {
		if answered {
			log.InfoContext(ctx, "broker responds again")
		} else {
			log.InfoContext(ctx, "no request waits for the broker any more")
		}
	}
}

// newProbe returns a probe of a silent node. silent has all silent nodes. p.mu is held.
func (p *producer) newProbe(node int32, now time.Time, silent map[int32]time.Time) probe {
	q := probe{node: node, addr: p.client.cluster.address(node)}
	for _, name := range slices.Sorted(maps.Keys(p.topics)) {
		for _, part := range p.topics[name].parts {
			if part.sender == nil || part.sender.node != node || len(part.queue) == 0 {
				continue
			}
			for _, b := range part.queue {
				q.records += b.records
			}
			if len(q.partitions) < probePartitions {
				q.partitions = append(q.partitions, topicPartition{name, part.id})
			}
		}
	}
	for _, s := range p.senders {
		if s.node == node && !s.waitingSince.IsZero() && s.throttledUntil.After(s.waitingSince) && now.Sub(s.throttledUntil) < silenceAfter {
			q.throttled = true
		}
		if s.node == node && s.busy && now.Sub(s.waitingSince) >= silenceAfter {
			q.overdue = true
		}
	}
	q.otherAddr = p.client.cluster.addressExcept(silent)
	return q
}

// runProbe finds out why the broker of q is silent, and logs the finding if it is new.
func (p *producer) runProbe(ctx context.Context, q probe) {
	found := p.client.diagnoseSilence(ctx, q)
	if ctx.Err() != nil {
		return
	}
	if found.state == slow && !q.overdue {
		return // the broker responds again, and the request is newer than the silence
	}
	p.mu.Lock()
	now := time.Now()
	s := p.silences[q.node]
	if s == nil || s.ended() {
		p.mu.Unlock()
		return
	}
	s.finding = found
	news := found.state != s.loggedFinding.state || !s.logged && now.Sub(s.loggedAt) >= relogAfter
	if news {
		s.logged, s.loggedFinding, s.loggedAt = true, found, now
	}
	lasted := now.Sub(s.since)
	p.mu.Unlock()
	if news {
		attrs := []slog.Attr{
			slog.Int("broker", int(q.node)), slog.String("addr", q.addr),
			slog.Duration("for", lasted), slog.Int("records", q.records), slog.String("reason", found.text),
		}
		p.log.LogAttrs(ctx, slog.LevelWarn, "broker does not respond", sink.WithFix(attrs, found.advice)...)
	}
}

// silenceReason returns why node does not respond, and how to fix it. p.mu is held.
func (p *producer) silenceReason(node int32) (reason, advice string) {
	why := finding{text: "does not respond"}
	if s := p.silences[node]; s != nil && !s.ended() && s.finding != (finding{}) {
		why = s.finding
	}
	return brokerAt(node, p.client.cluster.address(node)) + " " + why.text, why.advice
}

// A stall is a part of the producer that makes no progress.
type stall struct {
	since     time.Time
	reason    string
	topic     string
	partition int32
	missing   bool   // the topic does not exist, and somebody else has to create it
	advice    string // how to fix it; may be empty
}

// oldestStall returns the oldest stall, or the zero value if there is none. p.mu is held.
func (p *producer) oldestStall(now time.Time) stall {
	var s stall
	older := func(since time.Time) bool {
		return !since.IsZero() && (s.since.IsZero() || since.Before(s.since))
	}
	for node, since := range p.unansweredSince() {
		if now.Sub(since) >= silenceAfter && older(since) {
			s = stall{since: since, partition: sink.AnyPartition}
			s.reason, s.advice = p.silenceReason(node)
		}
	}
	for part := range p.retrying {
		if older(part.since) {
			s = p.stallOf(part.topic, &part.retryState, p.waitsForDeleted(part))
			s.partition = part.id
		}
	}
	for t := range p.unresolved {
		if older(t.since) {
			s = p.stallOf(t, &t.retryState, p.waitsForTopic(t.cause))
		}
	}
	for what, since := range p.errands {
		if now.Sub(since) >= silenceAfter && older(since) {
			s = stall{since: since, reason: "no response to " + what, partition: sink.AnyPartition}
		}
	}
	if older(p.identityRetry.since) {
		s = stall{since: p.identityRetry.since, reason: p.identityRetry.cause.Error(), partition: sink.AnyPartition}
	}
	return s
}

// stallOf returns the stall of records for t that are retried. missing says that somebody else has to create t. p.mu is held.
func (p *producer) stallOf(t *topic, retry *retryState, missing bool) stall {
	s := stall{since: retry.since, reason: retry.cause.Error(), topic: t.name, partition: sink.AnyPartition, missing: missing}
	if missing {
		s.advice = p.adviseMissing(t)
	} else {
		s.advice = p.client.cfg.adviseRetry(t.name, retry.cause)
	}
	return s
}

// beginErrand notes that brokers are asked for what, such as "a request for metadata", until the result is called: as long as they do
// not respond, the producer may be unable to send, and no sender waits.
func (p *producer) beginErrand(what string) (end func()) {
	began := time.Now()
	p.mu.Lock()
	p.errands[what] = began
	p.mu.Unlock()
	signal(p.wakeMonitor)
	return func() {
		p.mu.Lock()
		delete(p.errands, what)
		p.mu.Unlock()
		if time.Since(began) >= silenceAfter {
			signal(p.wakeMonitor)
		}
	}
}

// logStall logs a stall that is older than stallAfter, and the end of the last one. It returns the time until the
// next stall can be that old. p.mu is held.
func (p *producer) logStall(now time.Time, logLine func(func(context.Context))) time.Duration {
	s := p.oldestStall(now)
	switch lasted := now.Sub(s.since); {
	case s.since.IsZero() && !p.loggedStall.IsZero():
		after := now.Sub(p.loggedStall)
		p.loggedStall = time.Time{}
		logLine(func(ctx context.Context) {
			p.log.InfoContext(ctx, "sink recovered", slog.Duration("after", after))
		})
	case s.since.IsZero(), !p.loggedStall.IsZero():
	case lasted < stallAfter:
		return stallAfter - lasted
	default:
		p.loggedStall = s.since
		attrs := []slog.Attr{slog.String("reason", s.reason), slog.Duration("for", lasted)}
		if s.topic != "" {
			attrs = append(attrs, slog.String("topic", s.topic))
		}
		if s.partition != sink.AnyPartition {
			attrs = append(attrs, slog.Int("partition", int(s.partition)))
		}
		attrs = sink.WithFix(attrs, s.advice)
		logLine(func(ctx context.Context) {
			p.log.LogAttrs(ctx, slog.LevelError, "sink stalled", attrs...)
		})
	}
	return stallAfter
}
