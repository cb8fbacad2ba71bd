package kafka

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// silenceAfter is how long a broker may owe an answer before it is asked why. A broker
	// answers within its disk's and its replicas' time; it is well below readTimeout, with
	// which a request is given up.
	silenceAfter = 5 * time.Second

	// askEvery is how often a broker is asked while it is silent.
	askEvery = 5 * time.Second

	// repeatAfter is how long a broker that falls silent again for the same reason is no
	// news: one that takes six seconds for each request would be some, every time.
	repeatAfter = time.Minute

	// questionParts bounds how many partitions a question is about.
	questionParts = 20
)

// A silence is a broker that owes an answer: it has a request, or is to take a connection,
// or has had the one or the other and there is somebody waiting for it to do better the next
// time. Its fields belong to producer.mu.
type silence struct {
	node   int32
	since  time.Time // zero: it is over, and remembered for repeatAfter
	asked  time.Time // when it was last asked why
	found  finding   // what came of it; zero: nothing yet
	loud   bool      // this silence has been logged
	told   finding   // what was logged last
	toldAt time.Time
}

func (s *silence) over() bool { return s.since.IsZero() }

// watch asks silent brokers why, and logs what it finds and what has stalled, until ctx
// ends. It has a goroutine to itself because the others wait for those brokers.
func (p *producer) watch(ctx context.Context) {
	timer := time.NewTimer(silenceAfter)
	defer timer.Stop()
	for {
		select {
		case <-p.eased:
		case <-timer.C:
		case <-ctx.Done():
			p.look(ctx) // for what is over
			return
		}
		questions, wait := p.look(ctx)
		var round sync.WaitGroup
		for _, q := range questions {
			round.Go(func() { p.inquire(ctx, q) })
		}
		round.Wait()
		if len(questions) > 0 {
			wait = 0
		}
		timer.Reset(wait)
	}
}

// look logs what has stalled or is over, and returns what to ask now and when to look again.
func (p *producer) look(ctx context.Context) (questions []question, wait time.Duration) {
	var lines []func(context.Context)
	say := func(line func(context.Context)) { lines = append(lines, line) }
	p.mu.Lock()
	now := time.Now()
	questions, wait = p.watchSilences(now, say)
	wait = min(wait, p.watchStall(now, say))
	p.mu.Unlock()
	for _, line := range lines {
		line(ctx)
	}
	return questions, wait
}

// owing returns since when each node that something waits for has owed an answer. p.mu is
// held.
func (p *producer) owing() map[int32]time.Time {
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
		note(s, s.began)
	}
	for part := range p.trouble {
		if part.sender != nil {
			note(part.sender, part.silent)
		}
	}
	return owing
}

// watchSilences notes which brokers have fallen silent and which are so no longer. It
// returns what to ask now, and when the next can become due: a request that is sent later
// is not due earlier. p.mu is held.
func (p *producer) watchSilences(now time.Time, say func(func(context.Context))) (questions []question, wait time.Duration) {
	wait = silenceAfter
	owing := p.owing()
	maps.DeleteFunc(owing, func(_ int32, since time.Time) bool {
		left := silenceAfter - now.Sub(since)
		if left > 0 {
			wait = min(wait, left)
		}
		return left > 0
	})
	for node, since := range owing {
		s := p.silences[node]
		if s == nil {
			s = &silence{node: node}
			p.silences[node] = s
		}
		if s.over() {
			s.since, s.found, s.loud = since, finding{}, false
		}
		if left := askEvery - now.Sub(s.asked); left > 0 {
			wait = min(wait, left)
			continue
		}
		s.asked = now
		questions = append(questions, p.question(node, now, owing))
	}
	for node, s := range p.silences {
		if _, ok := owing[node]; ok {
			continue
		}
		if s.loud && !s.over() {
			say(p.relief(s, now))
		}
		s.since = time.Time{}
		if now.Sub(s.toldAt) >= repeatAfter {
			delete(p.silences, node)
		}
	}
	return questions, wait
}

// relief returns the line that a silence is over. p.mu is held.
func (p *producer) relief(s *silence, now time.Time) func(context.Context) {
	answered := false
	for _, sd := range p.senders {
		answered = answered || sd.node == s.node && sd.answered.After(s.since)
	}
	log := p.log.With(slog.Int("broker", int(s.node)), slog.String("addr", p.client.cluster.address(s.node)),
		slog.Duration("after", now.Sub(s.since)))
	return func(ctx context.Context) {
		if answered {
			log.InfoContext(ctx, "broker answers again")
		} else {
			log.InfoContext(ctx, "broker is not waited for any more")
		}
	}
}

// question returns what there is to ask about a silent node, given all that are silent. p.mu
// is held.
func (p *producer) question(node int32, now time.Time, silent map[int32]time.Time) question {
	q := question{node: node, addr: p.client.cluster.address(node)}
	for _, name := range slices.Sorted(maps.Keys(p.topics)) {
		for _, part := range p.topics[name].parts {
			if part.sender == nil || part.sender.node != node || len(part.queue) == 0 {
				continue
			}
			for _, b := range part.queue {
				q.records += b.records
			}
			if len(q.parts) < questionParts {
				q.parts = append(q.parts, place{name, part.id})
			}
		}
	}
	for _, s := range p.senders {
		if s.node == node && !s.began.IsZero() && s.throttle.After(s.began) && now.Sub(s.throttle) < silenceAfter {
			q.paused = true
		}
		if s.node == node && s.busy && now.Sub(s.began) >= silenceAfter {
			q.out = true
		}
	}
	q.other = p.client.cluster.other(silent)
	return q
}

// inquire asks q and logs the finding if it is news.
func (p *producer) inquire(ctx context.Context, q question) {
	found := p.client.diagnose(ctx, q)
	if ctx.Err() != nil {
		return
	}
	if found.state == slow && !q.out {
		return // it can be reached again, and our request is only now on its way there
	}
	p.mu.Lock()
	now := time.Now()
	s := p.silences[q.node]
	if s == nil || s.over() {
		p.mu.Unlock()
		return
	}
	s.found = found
	news := found.state != s.told.state || !s.loud && now.Sub(s.toldAt) >= repeatAfter
	if news {
		s.loud, s.told, s.toldAt = true, found, now
	}
	lasted := now.Sub(s.since)
	p.mu.Unlock()
	if news {
		p.log.WarnContext(ctx, "broker does not answer", slog.Int("broker", int(q.node)), slog.String("addr", q.addr),
			slog.Duration("for", lasted), slog.Int("records", q.records), slog.String("reason", found.text))
	}
}

// whySilent returns why nothing comes of waiting for node. p.mu is held.
func (p *producer) whySilent(node int32) string {
	why := finding{text: "does not answer"}
	if s := p.silences[node]; s != nil && !s.over() && s.found != (finding{}) {
		why = s.found
	}
	return brokerAt(node, p.client.cluster.address(node)) + " " + why.text
}
