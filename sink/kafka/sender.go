package kafka

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"
)

// A sender owns one connection to one broker: its goroutine alone opens, writes and closes
// it. At most one request is in flight. The answer arrives on the reader goroutine of the
// connection, which runs handleAnswer and nothing else.
type sender struct {
	producer *producer
	node     int32
	wake     chan struct{} // cap 1
	stopped  chan struct{} // closed when run has returned

	// These belong to producer.mu.
	addr            string
	queue           senderQueue // holds every partition in state ready, among others
	busy            bool        // a request is in flight
	broken          bool        // the connection has to be replaced
	refusalLogged   bool        // that the broker refuses the connection has been logged; until it accepts one
	gatheredBytes   int         // gathered since the last request
	gatheredRecords int

	waitingSince time.Time // since when the broker owes a connection or an answer; zero: it owes neither
	answeredAt   time.Time // when the last answer arrived

	// These belong to the sender's goroutine while busy is false, and to handleAnswer while it is
	// true.
	link            *link
	request         request
	lastUsed        time.Time
	throttledUntil  time.Time // the broker wants no request before
	connectAttempts int       // to connect, failed since the last success
	connectionLost  bool      // the last connection broke
	batches         []sentBatch
	acked           []uint64
	onAnswer        sarama.ProduceCallback
}

// A sentBatch is one batch of a request, and its outcome.
type sentBatch struct {
	part  *partition
	batch *batch
	first bool // no request before has had the batch
	class class
	err   error
	block *sarama.ProduceResponseBlock // nil: there was no answer
}

// senderFor returns the sender for a partition whose leader is node. p.mu is held.
func (p *producer) senderFor(ctx context.Context, node int32, part *partition) *sender {
	key := senderKey{node, (part.topic.index + int(part.id)) % p.client.cfg.ConnectionsPerBroker}
	s := p.senders[key]
	if s == nil {
		s = &sender{
			producer: p, node: node,
			request: request{codec: p.client.codec},
			wake:    make(chan struct{}, 1), stopped: make(chan struct{}),
		}
		s.onAnswer = s.handleAnswer
		p.senders[key] = s
		go s.run(ctx) // Run waits for s.stopped
	}
	if addr := p.client.cluster.address(node); addr != s.addr {
		s.broken = s.broken || s.addr != ""
		s.addr = addr
	}
	return s
}

// countGathered counts a record that was buffered for s, and wakes s if enough have gathered.
// producer.mu is held.
func (s *sender) countGathered(bytes int) {
	s.gatheredBytes += bytes
	s.gatheredRecords++
	if !s.busy && (s.gatheredBytes >= flushBytes || s.gatheredRecords >= flushRecords) {
		signal(s.wake)
	}
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer close(s.stopped)
	defer s.disconnect()
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil && s.sendRequest(ctx) {
		}
	}
}

// sendRequest sends one request, if there is something to send and no request in flight. It
// reports whether it wants to be called again without being woken.
func (s *sender) sendRequest(ctx context.Context) bool {
	addr, stale, ok := s.connectionTarget()
	if !ok {
		return false
	}
	idle := time.Since(s.lastUsed) > idleTimeout
	if s.link != nil && !stale && !idle {
		stale = s.link.check() != nil
	}
	s.connectionLost = s.connectionLost || stale
	if stale || idle {
		s.disconnect()
	}
	if s.link == nil {
		if err := s.connect(ctx, addr); err != nil {
			return s.backOff(ctx, err)
		}
	}
	if !s.pickBatches() {
		return false
	}
	if !sleepUntil(ctx, s.throttledUntil) {
		s.handleAnswer(nil, context.Cause(ctx))
		return false
	}
	s.lastUsed = time.Now()
	s.request.batches, s.request.identity = s.batches, s.producer.currentIdentity()
	err := s.link.produce(&s.request, s.onAnswer)
	s.request.releaseBatches()
	if err != nil { // then onAnswer is not called
		s.handleAnswer(nil, err)
	}
	return false
}

// connectionTarget reports whether there is something to send, to which address, and whether the
// connection to it has to be replaced.
func (s *sender) connectionTarget() (addr string, stale, ok bool) {
	p := s.producer
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.busy || p.identityLost || p.halted || s.queue.empty() || p.checkFence() != nil {
		return "", false, false
	}
	stale, s.broken = s.broken, false
	s.waitingSince = time.Now()
	return s.addr, stale, true
}

// pickBatches moves the first batch of each ready partition into the request, as long as that
// stays small, and reports whether there is any.
func (s *sender) pickBatches() bool {
	p := s.producer
	p.mu.Lock()
	defer p.mu.Unlock()
	s.batches = s.batches[:0]
	s.waitingSince = time.Time{}
	if p.identityLost || p.halted || p.checkFence() != nil {
		return false
	}
	size := 0
	for !s.queue.empty() {
		part := s.queue.front()
		if part.state != ready || part.sender != s {
			s.queue.pop()
			continue
		}
		b := part.queue[0]
		size += b.size
		if len(s.batches) > 0 && size > maxRequestBytes {
			break
		}
		s.queue.pop()
		s.batches = append(s.batches, sentBatch{part: part, batch: b, first: !b.sent})
		part.markInFlight(b)
	}
	s.gatheredBytes, s.gatheredRecords = 0, 0
	s.busy = len(s.batches) > 0
	if s.busy {
		p.requestsInFlight++
		s.waitingSince = time.Now()
	}
	return s.busy
}

// markInFlight puts b, part's first batch, into a request.
func (part *partition) markInFlight(b *batch) {
	if part.inRequest {
		panic("sink: two batches of one partition in a request")
	}
	part.inRequest = true
	part.state = inFlight
	b.sealed, b.sent = true, true
	if b.sequence == noSequence {
		b.sequence = part.nextSequence
		part.nextSequence = addSequence(part.nextSequence, b.records)
	}
}

// connect opens the connection.
func (s *sender) connect(ctx context.Context, addr string) error {
	c := s.producer.client.connector
	l, err := c.connect(ctx, addr, c.readTimeout)
	if err != nil {
		return err
	}
	l.conn.closeWith(ctx)
	l.conn.fence = s.producer.checkFence
	if s.connectionLost {
		s.producer.client.counters.reconnects.Add(1)
		s.connectionLost = false
	}
	s.link, s.connectAttempts, s.lastUsed = l, 0, time.Now()
	s.producer.mu.Lock()
	s.refusalLogged = false
	s.producer.mu.Unlock()
	return nil
}

// disconnect closes the connection, if there is one. An unanswered request is answered with
// an error before it returns.
func (s *sender) disconnect() {
	if s.link != nil {
		_ = s.link.Close() // whatever it says, it is given up
		s.link = nil
	}
}

// backOff has the leaders of the waiting partitions looked up, since their broker cannot be
// connected to, and waits before the next attempt. It reports whether ctx has not ended.
func (s *sender) backOff(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	p := s.producer
	p.mu.Lock()
	jitter := rand.Float64()
	for ; !s.queue.empty(); s.queue.pop() {
		part := s.queue.front()
		if part.state == ready && part.sender == s {
			part.noteAnswer(false, s.waitingSince)
			p.retryBatch(part, classifyRequest(err), err, s.waitingSince, jitter)
		}
	}
	if classifyRequest(err) == accessDenied && !s.refusalLogged {
		s.refusalLogged = true
		addr := s.addr
		p.logLater(func(ctx context.Context) {
			p.log.ErrorContext(ctx, "broker rejects the connection, retrying", slog.String("broker", addr), slog.Any("err", err))
		})
	}
	s.waitingSince = time.Time{}
	p.mu.Unlock()
	again := sleepUntil(ctx, time.Now().Add(backoff(s.connectAttempts, jitter)))
	s.connectAttempts++
	return again
}

// A senderQueue is a queue of partitions, first in, first out. An entry may have been overtaken by
// events: whoever pops it looks at the partition before using it.
type senderQueue struct {
	items []*partition
	head  int
}

func (l *senderQueue) empty() bool { return l.head == len(l.items) }

func (l *senderQueue) push(part *partition) {
	if l.head > 32 && l.head*2 >= len(l.items) {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, part)
}

func (l *senderQueue) front() *partition { return l.items[l.head] }

func (l *senderQueue) pop() {
	l.items[l.head] = nil
	l.head++
	if l.empty() {
		l.items, l.head = l.items[:0], 0
	}
}
