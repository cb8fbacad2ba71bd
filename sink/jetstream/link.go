package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// A link is one connection to a server, and what waits for responses over it. A lost link is not used any more: what was written
// to it never arrives later over another connection. Its methods may be called from any goroutine.
type link struct {
	server  string // host:port
	timeout time.Duration
	network network.Dialer // of the connection

	conn *nats.Conn
	js   jetstream.JetStream

	mu      sync.Mutex
	waiting map[*nats.Msg]waiter // by the message that was published, or by one that stands for a context of bind
	lost    error                // why the connection is lost
}

// A waiter waits for a response. Its end is called once, outside of link.mu, with nil if a message was acknowledged. It must not
// block.
type waiter struct {
	subject string // of a message that was published; empty: nats.go waits in a context of bind
	end     func(err error)
}

func newLink(c Config, server string) *link {
	return &link{server: server, timeout: c.RequestTimeout, network: network.Dialer{Dial: c.Dial}, waiting: make(map[*nats.Msg]waiter)}
}

// start uses conn. nats.go calls back once for each message that it has published, unless the connection is closed before.
func (l *link) start(conn *nats.Conn) (err error) {
	l.conn = conn
	l.js, err = jetstream.New(
		conn,
		jetstream.WithPublishAsyncMaxPending(math.MaxInt), // the window limits them
		jetstream.WithPublishAsyncTimeout(l.timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck) { l.end(m, checkAck(ack)) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) { l.end(m, err) }),
	)
	return err
}

// publish writes a message to which the server responds. It blocks while the connection takes no more bytes. If it returns
// an error, end is not called; an error that wraps lane.ErrConnection is that of a lost link.
func (l *link) publish(m *nats.Msg, end func(err error)) error {
	if err := l.await(m, waiter{m.Subject, end}); err != nil {
		return err
	}
	_, err := l.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	if err == nil {
		return nil
	}
	if _, waits := l.take(m); !waits {
		return nil // the link was lost, and end has its error
	}
	if isMessageError(err) {
		return err
	}
	l.fail(err)
	return l.failure()
}

// isMessageError reports whether err of a publish is about the message, and not about the connection.
func isMessageError(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrBadHeaderMsg)
}

// await adds a waiter, or returns the error of the lost link.
func (l *link) await(m *nats.Msg, w waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.waiting[m] = w
	}
	return l.lost
}

// take removes a waiter. Who takes it calls its end.
func (l *link) take(m *nats.Msg) (w waiter, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, waits = l.waiting[m]
	delete(l.waiting, m)
	return w, waits
}

func (l *link) end(m *nats.Msg, err error) {
	if w, waits := l.take(m); waits {
		w.end(err)
	}
}

// endAll ends the waiters for which ends returns true.
func (l *link) endAll(err error, ends func(w waiter) bool) {
	var ended []waiter
	l.mu.Lock()
	for m, w := range l.waiting {
		if ends(w) {
			ended = append(ended, w)
			delete(l.waiting, m)
		}
	}
	l.mu.Unlock()
	for _, w := range ended {
		w.end(err)
	}
}

// deniedSubject finds the subject in the text of a permission violation.
var deniedSubject = regexp.MustCompile(`(?i)for (publish|subscription) to "([^"]*)"`)

// handleError handles an error that the server sends. If the user may not use a subject, it ends what waits for that. The server
// responds to messages in order, so those that it has accepted before have their response, or will be resent.
func (l *link) handleError(err error) {
	if errors.Is(err, nats.ErrSlowConsumer) { // it has dropped responses
		l.fail(err)
		return
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	kind, subject := strings.ToLower(found[1]), found[2]
	l.endAll(fmt.Errorf("%w: %s: permission denied for %s", errDenied, subject, kind), func(w waiter) bool {
		return w.subject == "" || w.subject == subject || kind == "subscription"
	})
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// fail ends the link and all that waits.
func (l *link) fail(err error) {
	lost := fmt.Errorf("%w: %s: %w", lane.ErrConnection, l.server, err)
	if isAccess(err) {
		lost = fmt.Errorf("%w: %w", errAccess, lost)
	}
	l.mu.Lock()
	if l.lost != nil {
		l.mu.Unlock()
		return
	}
	l.lost = lost
	l.mu.Unlock()
	l.network.Close() // also ends a write that blocks
	l.endAll(lost, func(waiter) bool { return true })
}

// close ends the link.
func (l *link) close() {
	l.fail(nats.ErrConnectionClosed)
	l.conn.Close()
}

// bind returns a context that also ends when the link is lost or the user lacks a permission. Its cause is that error.
func (l *link) bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	m := new(nats.Msg)
	if err := l.await(m, waiter{end: cancel}); err != nil {
		cancel(err)
	}
	return bound, func() {
		l.take(m)
		cancel(nil)
	}
}

// call calls f, which uses l, with a context that ends after the timeout, when the link is lost, and when the user lacks a
// permission. call then returns that error.
func call[T any](ctx context.Context, l *link, f func(ctx context.Context) (T, error)) (T, error) {
	bound, release := l.bind(ctx)
	defer release()
	limited, stop := context.WithTimeoutCause(bound, l.timeout, errTimeout)
	defer stop()
	result, err := f(limited)
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	return result, err
}

// stream returns a stream as its leader knows it. The error is jetstream.ErrStreamNotFound if there is none.
func (l *link) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	return call(ctx, l, func(ctx context.Context) (jetstream.Stream, error) { return l.js.Stream(ctx, name) })
}
