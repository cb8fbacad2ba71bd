package rabbitmq

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// sweepInterval is how long the oldest message of a channel may delay the confirms of later ones: RabbitMQ confirms messages
// for different queues out of order.
const sweepInterval = 5 * time.Millisecond

const (
	// nackingAfter is how long a channel is used at least, although the broker has not stored one of its messages.
	nackingAfter = time.Second

	// retireTimeout is how long the messages of a channel that is replaced may take until each has an outcome. A queue that
	// confirms more slowly gets them again whenever another one nacks.
	retireTimeout = 15 * time.Second
)

// A flight is a message that was written to a channel, or waits for a channel of its own.
type flight struct {
	request *lane.Request
	destination
	size     int // of the body
	confirm  *amqp.DeferredConfirmation
	returned bool
}

// An outcome is what happened to a message.
type outcome int

const (
	stored   outcome = iota // confirmed
	returned                // no queue takes it
	nacked                  // not stored
	lost                    // the channel was closed before the confirm
)

// A channel is an AMQP channel in confirm mode. One goroutine publishes; another collects the confirms.
type channel struct {
	*amqp.Channel
	settle  func(f *flight, o outcome, cause *codeError) // cause is that of a lost message, nil if the connection is lost
	returns chan amqp.Return
	closes  chan *amqp.Error
	wake    chan struct{} // cap 1
	fatal   func()        // ends the connection
	cause   *codeError    // of collect; publish may read it if ended is set
	opened  time.Time
	nacked  atomic.Bool // the broker has not stored a message
	retired atomic.Bool // retire was called

	mu    sync.Mutex
	queue []*flight // in the order of publishing, from head on
	head  int
	ended bool // collect has ended
}

// openChannel opens a channel for at most capacity unconfirmed messages. settle is called once for each message.
func (k *connection) openChannel(capacity int, settle func(*flight, outcome, *codeError)) (*channel, error) {
	ch, err := k.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	c := &channel{
		Channel: ch, settle: settle, wake: make(chan struct{}, 1), opened: time.Now(),
		fatal: func() { _ = k.wire.Close() },
		// Each message is returned at most once, so the library never waits for the buffer. It would drop a return after
		// five seconds.
		returns: ch.NotifyReturn(make(chan amqp.Return, capacity)),
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	k.collectors.Go(c.collect)
	return c, nil
}

// publish writes a message. If it returns false, the channel is closed, and settle is not called.
func (c *channel) publish(f *flight, m *message) bool {
	confirm, err := c.PublishWithDeferredConfirm(m.exchange, m.routingKey, true, false, m.publishing)
	if err != nil {
		return false
	}
	f.confirm = confirm
	if !c.push(f) {
		<-confirm.Done() // the channel is closed
		c.settle(f, f.outcome(true), c.cause)
		return true
	}
	c.wakeCollect()
	return true
}

func (c *channel) wakeCollect() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// isNacking reports whether to replace the channel because the broker does not store its messages. A channel of RabbitMQ remembers
// the leader of a quorum queue. If that node is lost before the channel has written to the queue, each message is nacked until the
// node is back, although another channel would find the new leader.
func (c *channel) isNacking() bool { return c.nacked.Load() && time.Since(c.opened) >= nackingAfter }

// retire closes the channel when each of its messages has an outcome. The caller does not publish to it any more. If that takes too
// long, retire ends the connection: while RabbitMQ tries to reach a node that hangs, it nacks one message in seven seconds.
func (c *channel) retire() {
	c.retired.Store(true)
	c.wakeCollect()
	time.AfterFunc(retireTimeout, func() {
		if !c.IsClosed() {
			c.fatal()
		}
	})
}

// push adds a message to the queue, unless collect has ended.
func (c *channel) push(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.queue = append(c.queue, f)
	}
	return !c.ended
}

// collect settles messages until the channel is closed and each has an outcome.
func (c *channel) collect() {
	tick := time.NewTimer(sweepInterval)
	defer tick.Stop()
	closed := false
	for {
		oldest := c.oldest(closed)
		if oldest == nil && closed {
			return
		}
		if oldest == nil {
			if c.retired.Load() {
				_ = c.Close() // also ends closes
			}
			select {
			case <-c.wake:
			case err := <-c.closes:
				closed, c.cause = true, closeCause(err)
			}
			continue
		}
		tick.Reset(sweepInterval)
		late := false
		select {
		case <-oldest.confirm.Done():
		case <-tick.C:
			late = true
		}
		if !closed && c.IsClosed() {
			closed, c.cause = true, closeCause(<-c.closes)
		}
		for _, s := range c.take(late, closed) {
			if s.outcome == nacked {
				c.nacked.Store(true)
			}
			c.settle(s.flight, s.outcome, c.cause)
		}
	}
}

// closeCause returns the reason for which the broker has closed a channel, or nil if the connection is lost.
func closeCause(err *amqp.Error) *codeError {
	if err == nil || !err.Server || !err.Recover {
		return nil
	}
	return errorOf(err.Code)
}

// oldest returns the oldest message of the queue, or nil. If there is none and the channel is closed, push adds none.
func (c *channel) oldest(closed bool) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == len(c.queue) {
		c.ended = closed
		return nil
	}
	return c.queue[c.head]
}

// A result is the outcome of a message.
type result struct {
	*flight
	outcome outcome
}

// take removes messages that have an outcome from the queue: those before the first that has none or, if all is set,
// any.
func (c *channel) take(all, closed bool) []result {
	c.mu.Lock()
	defer c.mu.Unlock()
	var done []result
	rest := c.queue[c.head:]
	kept := rest[:0]
	for i, f := range rest {
		if !f.isConfirmed() {
			if !all {
				break
			}
			kept = append(kept, f)
			continue
		}
		c.matchReturns(kept, rest[i:])
		done = append(done, result{f, f.outcome(closed)})
	}
	if all {
		clear(rest[len(kept):])
		c.queue = c.queue[:c.head+len(kept)]
	} else {
		clear(rest[:len(done)])
		c.head += len(done)
	}
	if c.head > len(c.queue)/2 {
		c.queue = slices.Delete(c.queue, 0, c.head)
		c.head = 0
	}
	return done
}

func (f *flight) isConfirmed() bool {
	select {
	case <-f.confirm.Done():
		return true
	default:
		return false
	}
}

// outcome returns the outcome of a message whose confirm is done. When a channel is closed, the library reports its other
// messages as not stored, but nobody knows.
func (f *flight) outcome(closed bool) outcome {
	switch {
	case f.confirm.Acked() && f.returned:
		return returned
	case f.confirm.Acked():
		return stored
	case closed:
		return lost
	}
	return nacked
}

// matchReturns notes which messages the broker has returned. The library hands over a return before the confirm that
// follows it.
func (c *channel) matchReturns(parts ...[]*flight) {
	for {
		select {
		case r, ok := <-c.returns:
			if !ok {
				return // the channel is closed, and every return was received
			}
			if !match(&r, parts) {
				c.fatal()
			}
		default:
			return
		}
	}
}

// match marks the message that the broker has returned. It reports whether there is one.
func match(r *amqp.Return, parts [][]*flight) bool {
	for _, part := range parts {
		for _, f := range part {
			if !f.returned && f.isReturn(r) {
				f.returned = true
				return true
			}
		}
	}
	return false
}

// isReturn reports whether r is the message of f. If it cannot tell two messages apart, they differ only in headers.
func (f *flight) isReturn(r *amqp.Return) bool {
	if f.exchange != r.Exchange || f.routingKey != r.RoutingKey || f.size != len(r.Body) {
		return false
	}
	m, err := newMessage(f.request.Records[0], "", make(amqp.Table))
	return err == nil && m.isReturn(r)
}
