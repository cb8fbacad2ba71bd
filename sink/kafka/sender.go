package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// A sender owns one connection to one broker: its goroutine alone opens, writes and closes
// it. At most one request is unanswered. The answer arrives on the reader goroutine of the
// connection, which runs answer and nothing else.
type sender struct {
	producer *producer
	node     int32
	wake     chan struct{} // cap 1
	stopped  chan struct{} // closed when run has returned

	// These belong to producer.mu.
	addr    string
	list    list // partitions in state ready, among others
	busy    bool // a request is unanswered
	broken  bool // the connection is, or is not to be trusted
	refused bool // that the broker refuses us has been logged
	bytes   int  // gathered since the last request
	records int

	began    time.Time // the making of a connection or the sending of a request, either unanswered; zero: neither
	answered time.Time // the last request that was

	// These belong to the goroutine while busy is false, and to whoever answers while it
	// is true.
	link     *link
	request  request
	lastUsed time.Time
	throttle time.Time // nothing is to be sent before
	attempts int       // to connect, failed since the last success
	lost     bool      // the last connection broke
	shipped  []shipment
	acked    []uint64
	onAnswer sarama.ProduceCallback
}

// A shipment is one batch of a request and what became of it.
type shipment struct {
	part  *partition
	batch *batch
	class class
	err   error
	block *sarama.ProduceResponseBlock // nil: there was no answer
}

// senderFor returns the sender for a partition whose leader is node. p.mu is held.
func (p *producer) senderFor(ctx context.Context, node int32, part *partition) *sender {
	key := senderKey{node, (part.topic.number + int(part.id)) % p.client.cfg.ConnectionsPerBroker}
	s := p.senders[key]
	if s == nil {
		s = &sender{
			producer: p, node: node,
			request: request{codec: p.client.codec},
			wake:    make(chan struct{}, 1), stopped: make(chan struct{}),
		}
		s.onAnswer = s.answer
		p.senders[key] = s
		go s.run(ctx) // Run waits for s.stopped
	}
	if addr := p.client.cluster.address(node); addr != s.addr {
		s.broken = s.broken || s.addr != ""
		s.addr = addr
	}
	return s
}

// gathered counts what has been added for s, and wakes it if that is enough. producer.mu is
// held.
func (s *sender) gathered(bytes int) {
	s.bytes += bytes
	s.records++
	if !s.busy && (s.bytes >= flushBytes || s.records >= flushRecords) {
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
		for ctx.Err() == nil && s.send(ctx) {
		}
	}
}

// send sends one request, if there is something to send and nothing unanswered. It reports
// whether it wants to be called again without being woken.
func (s *sender) send(ctx context.Context) bool {
	addr, stale, ok := s.wanted()
	if !ok {
		return false
	}
	s.lost = s.lost || stale
	if stale || time.Since(s.lastUsed) > idleTimeout {
		s.disconnect()
	}
	if s.link == nil {
		if err := s.connect(ctx, addr); err != nil {
			return s.unreachable(ctx, err)
		}
	}
	if !s.pick() {
		return false
	}
	if !sleepUntil(ctx, s.throttle) {
		s.answer(nil, context.Cause(ctx))
		return false
	}
	s.lastUsed = time.Now()
	s.request.shipped, s.request.identity = s.shipped, s.producer.present()
	err := s.link.produce(&s.request, s.onAnswer)
	s.request.release()
	if err != nil { // then onAnswer is not called
		s.answer(nil, err)
	}
	return false
}

// wanted reports whether there is something to send, where to, and whether the connection
// there has to be made anew.
func (s *sender) wanted() (addr string, stale, ok bool) {
	p := s.producer
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.busy || p.gated || p.halted || s.list.empty() {
		return "", false, false
	}
	stale, s.broken = s.broken, false
	s.began = time.Now()
	return s.addr, stale, true
}

// pick takes the first batch of each ready partition, as long as the request stays small,
// and reports whether there is any.
func (s *sender) pick() bool {
	p := s.producer
	p.mu.Lock()
	defer p.mu.Unlock()
	s.shipped = s.shipped[:0]
	s.began = time.Time{}
	if p.gated || p.halted || p.fenced() != nil {
		return false
	}
	size := 0
	for !s.list.empty() {
		part := s.list.front()
		if part.state != ready || part.sender != s {
			s.list.pop()
			continue
		}
		b := part.queue[0]
		size += b.size
		if len(s.shipped) > 0 && size > maxRequestBytes {
			break
		}
		s.list.pop()
		part.ship(b)
		s.shipped = append(s.shipped, shipment{part: part, batch: b})
	}
	s.bytes, s.records = 0, 0
	s.busy = len(s.shipped) > 0
	if s.busy {
		p.unanswered++
		s.began = time.Now()
	}
	return s.busy
}

// ship commits part to sending b, its first batch.
func (part *partition) ship(b *batch) {
	if part.inRequest {
		panic("sink: two batches of one partition in a request")
	}
	part.inRequest = true
	part.state = inFlight
	b.sealed, b.sent = true, true
	if b.sequence == noSequence {
		b.sequence = part.next
		part.next = nextSequence(part.next, b.records)
	}
}

// connect opens the connection.
func (s *sender) connect(ctx context.Context, addr string) error {
	l, err := s.producer.client.wire.connect(ctx, addr, readTimeout)
	if err != nil {
		return err
	}
	l.conn.watch(ctx)
	l.conn.fence = s.producer.askFence
	if s.lost {
		s.producer.client.counters.reconnects.Add(1)
		s.lost = false
	}
	s.link, s.attempts, s.lastUsed = l, 0, time.Now()
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

// unreachable sends the waiting partitions to look for their leaders, since the one they
// had does not take connections, and waits a little before the next attempt.
func (s *sender) unreachable(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	p := s.producer
	p.mu.Lock()
	luck := luck()
	for ; !s.list.empty(); s.list.pop() {
		part := s.list.front()
		if part.state == ready && part.sender == s {
			part.answered(false, s.began)
			p.strike(part, classifyRequest(err), err, s.began, luck)
		}
	}
	if classifyRequest(err) == refused && !s.refused {
		s.refused = true
		addr := s.addr
		p.note(func(ctx context.Context) {
			p.log.ErrorContext(ctx, "broker refuses the connection, trying on", slog.String("broker", addr), slog.Any("err", err))
		})
	}
	s.began = time.Time{}
	p.mu.Unlock()
	again := sleepUntil(ctx, time.Now().Add(backoff(s.attempts, luck)))
	s.attempts++
	return again
}

// sleepUntil waits until t and reports whether it did before ctx ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
