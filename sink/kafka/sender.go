package kafka

import (
	"context"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// A sender owns a connection to a broker: only its goroutine opens, writes and closes it. At most one request is in
// flight. The response arrives on the reader goroutine of the connection, which only calls handleAnswer.
type sender struct {
	producer *producer
	node     int32
	wake     chan struct{} // cap 1
	stopped  chan struct{} // closed when run has returned

	// Protected by producer.mu.
	addr            string
	queue           senderQueue // has every partition in state ready, perhaps others too
	busy            bool        // a request is in flight
	broken          bool        // the connection must be replaced
	refusalLogged   bool        // a rejected connection was logged; until the broker accepts one
	gatheredBytes   int         // buffered since the last request
	gatheredRecords int

	waitingSince time.Time // since when the sender waits for a connection or a response; zero: it does not
	answeredAt   time.Time // time of the last response

	// Used by the goroutine of the sender while busy is false, and by handleAnswer while it is true.
	link            *link
	request         request
	lastUsed        time.Time
	throttledUntil  time.Time // the broker throttles us until then
	connectAttempts int       // failed attempts to connect since the last success
	connectionLost  bool      // the last connection was lost
	batches         []sentBatch
	sorted          []*partition // reused by putFullestFirst
	acked           []uint64
	taken           takeOut // by takeStored, not acknowledged yet
	onAnswer        sarama.ProduceCallback
}

// A sentBatch is a batch of a request, and its outcome.
type sentBatch struct {
	part  *partition
	batch *batch
	first bool // the batch was not sent before
	class class
	err   error
	block *sarama.ProduceResponseBlock // nil: no response
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

// countGathered counts a record that was buffered for s, and wakes s if there are enough. producer.mu is held.
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

// sendRequest sends one request, if there are records and no request is in flight. It reports whether to call it again
// without waiting for wake.
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
	picked := s.pickBatches()
	s.acknowledgeTaken()
	if !picked {
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
	if err != nil { // handleAnswer was not called
		s.handleAnswer(nil, err)
	}
	return false
}

// connectionTarget returns the address to send to, and whether the connection to it must be replaced. ok is false if
// there is nothing to send.
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

// pickBatches adds the first batch of each ready partition to the request, up to maxRequestBytes. It reports whether
// there is any.
func (s *sender) pickBatches() bool {
	p := s.producer
	p.mu.Lock()
	defer p.unlockAndReport()
	s.batches = s.batches[:0]
	s.waitingSince = time.Time{}
	if p.identityLost || p.halted || p.checkFence() != nil {
		return false
	}
	s.takeStored()
	s.putFullestFirst()
	size := 0
	for !s.queue.empty() {
		part := s.queue.front()
		if part.state != ready || part.sender != s {
			s.queue.pop()
			continue
		}
		b := part.queue[0]
		if b.excess {
			s.queue.pop()
			if !p.refuseExcess(part, b) {
				p.makeReady(part)
			}
			s.takeStored() // the records behind it are the first ones now
			continue
		}
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

// maxPassed is how many requests in a row may leave out a partition because others have larger batches.
const maxPassed = 64

// putFullestFirst removes entries of the queue that are out of date. If the others do not fit into one request, it puts
// those with the largest batches first, so that the batches of the others grow meanwhile: a broker works for each batch,
// not for each record. producer.mu is held.
func (s *sender) putFullestFirst() {
	size := 0
	var places [maxUrgency + 1]int // by urgency: first the number of partitions, then the place of the next one
	s.queue.keep(func(part *partition) bool {
		if part.state != ready || part.sender != s {
			return false
		}
		size += part.queue[0].size
		places[part.urgency()]++
		return true
	})
	if size <= maxRequestBytes {
		return
	}
	next := 0
	for u, n := range slices.Backward(places[:]) {
		places[u] = next
		next += n
	}
	s.sorted = slices.Grow(s.sorted[:0], next)[:next]
	for _, part := range s.queue.items {
		u := part.urgency()
		s.sorted[places[u]] = part
		places[u]++
		part.passed = min(part.passed+1, maxPassed) // markInFlight resets those that are sent
	}
	s.queue.items, s.sorted = s.sorted, s.queue.items
}

// maxUrgency is the urgency of a partition that was passed maxPassed times.
const maxUrgency = 255

// urgency returns how early the first batch of part is to leave. Four steps double its size: a partition is counted into
// one of few steps, because sorting thousands by their exact sizes takes milliseconds.
func (part *partition) urgency() int {
	if part.passed >= maxPassed {
		return maxUrgency
	}
	size := part.queue[0].size
	digits := bits.Len(uint(size))
	return digits<<2 | size>>max(digits-3, 0)&3
}

// markInFlight marks b, the first batch of part, as part of a request.
func (part *partition) markInFlight(b *batch) {
	if part.inRequest {
		panic("sink: two batches of one partition in a request")
	}
	part.inRequest = true
	part.state = inFlight
	part.passed = 0
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

// disconnect closes the connection, if there is one. A request in flight fails before disconnect returns.
func (s *sender) disconnect() {
	if s.link != nil {
		_ = s.link.Close() // its error does not matter
		s.link = nil
	}
}

// backOff schedules a look-up of the leaders of the waiting partitions, because their broker cannot be reached, and
// waits before the next attempt. It reports false if ctx has ended.
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
			p.log.ErrorContext(ctx, "broker rejects the connection, retrying", slog.String("broker", addr), slog.Any("err", err), slog.String("fix", loginAdvice))
		})
	}
	s.waitingSince = time.Time{}
	p.mu.Unlock()
	again := sleepUntil(ctx, time.Now().Add(backoff(s.connectAttempts, jitter)))
	s.connectAttempts++
	return again
}

// A senderQueue is a FIFO queue of partitions. An entry may be out of date, so check the state of the partition after
// pop.
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

// keep removes the entries for which f returns false.
func (l *senderQueue) keep(f func(*partition) bool) {
	kept := l.items[:0]
	for _, part := range l.items[l.head:] {
		if f(part) {
			kept = append(kept, part)
		}
	}
	clear(l.items[len(kept):])
	l.items, l.head = kept, 0
}

func (l *senderQueue) front() *partition { return l.items[l.head] }

func (l *senderQueue) pop() {
	l.items[l.head] = nil
	l.head++
	if l.empty() {
		l.items, l.head = l.items[:0], 0
	}
}
