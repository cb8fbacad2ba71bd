package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// safeSize is a body size that every broker accepts. A larger message travels alone unless one of its size was confirmed:
// the broker does not say what its max_message_size is.
const safeSize = 128 << 10

// isRisky reports whether the broker may close the channel because of a message.
func (t *transport) isRisky(l *link, f *flight) bool {
	if f.size > safeSize && int64(f.size) > l.maxAcked.Load() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.known[f.exchange] || t.denied[f.destination] || t.tooBig > 0 && f.size >= t.tooBig
}

// settleShared reports the outcome of a message that was on a channel with others. If the broker has closed the channel
// because of one of them, those that may be it are sent again, each alone.
func (t *transport) settleShared(l *link, f *flight, o outcome, cause *codeError) {
	if o != lost || cause == nil {
		t.settle(l, f, o)
		return
	}
	switch cause.class {
	case missing, denied:
		t.mu.Lock()
		delete(t.known, f.exchange)
		t.mu.Unlock()
		t.sendAlone(l, f)
		return
	case rejected:
		l.maxAcked.Store(0) // it may have been lowered
		t.sendAlone(l, f)
		return
	case retriable:
	}
	f.request.Done(0, fmt.Errorf("%s: %w: %w", l.addr, errClosed, cause))
}

// settle reports the outcome of a message that has not closed a channel.
func (t *transport) settle(l *link, f *flight, o outcome) {
	switch o {
	case stored:
		l.confirmed(int64(f.size))
		f.request.Done(1, nil)
	case returned:
		if f.exchange == "" {
			f.request.Done(0, missingError(f.destination))
			return
		}
		f.request.Done(0, &sink.RecordError{Code: errorOf(amqp.NoRoute).name, Reason: errNoRoute})
	case nacked:
		f.request.Done(0, fmt.Errorf("%s: %w", l.addr, errNack))
	case lost:
		f.request.Done(0, fmt.Errorf("%w: %s: %w", lane.ErrConnection, l.addr, errLost))
	}
}

// sendAlone sends a message over a channel on which there is no other.
func (t *transport) sendAlone(l *link, f *flight) {
	t.jobs.Go(func() {
		select {
		case l.alone <- struct{}{}:
		case <-l.lost:
			t.settle(l, f, lost)
			return
		}
		defer func() { <-l.alone }()
		t.tryAlone(l, f)
	})
}

// tryAlone writes f to a channel of its own, waits for the outcome and reports it.
func (t *transport) tryAlone(l *link, f *flight) {
	if t.mustWait(l, f) {
		return
	}
	m, err := newMessage(f.request.Records[0], t.cfg.ContentType, make(amqp.Table))
	if err != nil {
		f.request.Done(0, err)
		return
	}
	c := l.takeIdle()
	if c == nil {
		if c, err = l.openChannel(1, nil); err != nil {
			f.request.Done(0, t.channelError(l, err))
			return
		}
		if t.mustWait(l, f) { // opening takes two round trips
			l.putIdle(c)
			return
		}
	}
	type end struct {
		outcome outcome
		cause   *codeError
	}
	ended := make(chan end, 1)
	f.returned = false
	c.settle = func(_ *flight, o outcome, cause *codeError) { ended <- end{o, cause} }
	if !c.publish(f, &m) {
		f.request.Done(0, t.channelError(l, errClosed))
		return
	}
	e := <-ended
	if e.outcome != lost {
		l.putIdle(c)
		t.rememberAccepted(f, e.outcome)
		t.settle(l, f, e.outcome)
		return
	}
	t.reportRejection(l, f, e.cause)
}

// mustWait reports whether the fence or an alarm forbids to write f now. It then reports the outcome of f, which the broker
// may have stored if f was on a channel with others.
func (t *transport) mustWait(l *link, f *flight) bool {
	err := f.request.Fence()
	if err != nil && f.confirm != nil {
		err = fmt.Errorf("%s: %w", l.addr, errClosed)
	}
	if reason, _ := l.alarm.state(); err == nil && reason != "" {
		err = &blockedError{l.addr, reason}
	}
	if err != nil {
		f.request.Done(0, err)
	}
	return err != nil
}

// rememberAccepted notes that the broker takes messages for the destination of f.
func (t *transport) rememberAccepted(f *flight, o outcome) {
	if o != stored && o != returned {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lane.MakeRoom(t.known, f.exchange, maxRemembered)
	t.known[f.exchange] = true
	delete(t.denied, f.destination)
	if t.tooBig <= f.size {
		t.tooBig = 0
	}
}

// reportRejection reports that the broker has closed a channel because of f, which was alone on it.
func (t *transport) reportRejection(l *link, f *flight, cause *codeError) {
	if cause == nil {
		t.settle(l, f, lost)
		return
	}
	t.mu.Lock()
	switch cause.class {
	case missing:
		delete(t.known, f.exchange)
	case denied:
		lane.MakeRoom(t.denied, f.destination, maxRemembered)
		t.denied[f.destination] = true
	case rejected:
		if t.tooBig == 0 || f.size < t.tooBig {
			t.tooBig = f.size
		}
	case retriable:
	}
	t.mu.Unlock()
	switch cause.class {
	case missing:
		f.request.Done(0, missingError(f.destination))
	case denied:
		f.request.Done(0, deniedError(f.destination, t.cfg.User))
	case rejected:
		f.request.Done(0, &sink.RecordError{Size: f.size, TooLarge: true, Code: cause.name, Reason: errTooLarge})
	case retriable:
		f.request.Done(0, fmt.Errorf("%s: %w", l.addr, cause))
	}
}
