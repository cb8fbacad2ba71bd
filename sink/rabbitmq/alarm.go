package rabbitmq

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// alarmWait is how long a message waits for the end of an alarm, before its failure makes the Writer back off.
const alarmWait = 100 * time.Millisecond

// An alarm is why the broker blocks a connection: it lacks memory or disk space.
type alarm struct {
	mu      sync.Mutex
	reason  string        // "": the broker accepts messages
	changed chan struct{} // closed when reason changes
}

// watchAlarm keeps the alarm of conn until the connection is closed.
func watchAlarm(conn *amqp.Connection) *alarm {
	a := &alarm{changed: make(chan struct{})}
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	go func() { // the library waits until each notice is received
		for b := range blocks {
			reason := ""
			if b.Active {
				reason = cmp.Or(b.Reason, "no reason given")
			}
			a.set(reason)
		}
		a.set("")
	}()
	return a
}

func (a *alarm) set(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason != reason {
		a.reason = reason
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// state returns the reason, "" if the broker accepts messages, and a channel that is closed when it changes.
func (a *alarm) state() (reason string, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason, a.changed
}

// A blockedError is that of a message that was not written because of an alarm. All messages wait, as without a connection.
type blockedError struct{ addr, reason string }

func (e *blockedError) Error() string {
	return fmt.Sprintf("%s: the broker blocks publishing: %s", e.addr, e.reason)
}

// Advice implements [sink.Advised].
func (e *blockedError) Advice() string {
	return "Free what the broker lacks: it has an alarm (rabbitmqctl status) and takes no messages until that is over."
}

func (e *blockedError) Is(target error) bool { return target == lane.ErrConnection }

// Silence implements [lane.Explainer].
func (t *transport) Silence() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		if l == nil {
			continue
		}
		if reason, _ := l.alarm.state(); reason != "" {
			return &blockedError{l.addr, reason}
		}
	}
	return nil
}

// awaitUnblocked waits a little while the broker blocks the connection. The error says that it still does, or that ctx has ended.
func (l *link) awaitUnblocked(ctx context.Context) error {
	reason, changed := l.alarm.state()
	if reason != "" {
		l.wire.uncork()
		select {
		case <-changed:
		case <-time.After(alarmWait):
		case <-ctx.Done():
		}
		reason, _ = l.alarm.state()
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", lane.ErrConnection, context.Cause(ctx))
	case reason != "":
		return &blockedError{l.addr, reason}
	}
	return nil
}
