package jetstream

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// checkInterval is how often a link looks for requests that have no response in time, unless that is short.
const checkInterval = 250 * time.Millisecond

var (
	errTimeout      = errors.New("no response from the stream in time")
	errNoResponders = errors.New("no stream responds")
)

// A link is one connection to a server, and the requests on it. A lost link is not used any more: what was written to it
// never arrives later over another connection. Its methods may be called from any goroutine.
type link struct {
	server  string // host:port
	timeout time.Duration
	network network.Dialer // of the connection

	conn *nats.Conn
	js   jetstream.JetStream

	inbox string // of responses, with a dot at its end

	mu       sync.Mutex
	calls    map[uint64]call
	next     uint64                             // id of the next call
	oldest   uint64                             // calls before it have ended
	heardAt  time.Time                          // of the last response
	bound    map[uint64]context.CancelCauseFunc // of the contexts of bind
	lost     error                              // why the connection is lost
	ended    chan struct{}                      // closed when lost is set
	finished sync.WaitGroup
}

// A call is a message that was published and has no response. Its done is called once, outside of link.mu.
type call struct {
	subject string
	at      time.Time
	done    respond
}

// A respond is called with the response to a message, or an error. It must not block.
type respond func(m *nats.Msg, err error)

func newLink(c Config, server string) *link {
	return &link{
		server: server, timeout: c.RequestTimeout, network: network.Dialer{Dial: c.Dial},
		calls: make(map[uint64]call), bound: make(map[uint64]context.CancelCauseFunc), ended: make(chan struct{}),
	}
}

// start subscribes to the responses.
func (l *link) start(conn *nats.Conn) error {
	l.conn = conn
	var err error
	if l.js, err = jetstream.New(conn); err != nil {
		return err
	}
	l.inbox = conn.NewInbox() + "."
	sub, err := conn.Subscribe(l.inbox+"*", l.handleResponse)
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // the window limits them
		return err
	}
	l.heardAt = time.Now()
	l.finished.Go(l.watch)
	return nil
}

// publish writes a message to which the server responds. It blocks while the connection takes no more bytes. If it returns
// an error, done is not called; an error that wraps lane.ErrConnection is that of a lost link.
func (l *link) publish(m *nats.Msg, done respond) error {
	l.mu.Lock()
	if l.lost != nil {
		defer l.mu.Unlock()
		return l.lost
	}
	id := l.next
	l.next++
	l.calls[id] = call{m.Subject, time.Now(), done}
	l.mu.Unlock()

	m.Reply = l.inbox + strconv.FormatUint(id, 36)
	err := l.conn.PublishMsg(m)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	_, outstanding := l.calls[id]
	delete(l.calls, id)
	l.mu.Unlock()
	if !outstanding {
		return nil // the link was lost, and done has its error
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

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// handleResponse ends a call. nats.go calls it from one goroutine.
func (l *link) handleResponse(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(l.inbox):], 36, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	c, ok := l.calls[id]
	delete(l.calls, id)
	l.heardAt = time.Now()
	l.mu.Unlock()
	switch {
	case !ok: // it has timed out
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		c.done(nil, errNoResponders)
	default:
		c.done(m, nil)
	}
}

// handleError handles an error that the server sends.
func (l *link) handleError(err error) {
	if errors.Is(err, nats.ErrPermissionViolation) {
		l.handleDenied(err)
	}
}

// deniedSubject finds the subject in the text of a permission violation.
var deniedSubject = regexp.MustCompile(`(?i)for (publish|subscription) to "([^"]*)"`)

// handleDenied ends the calls with the subject that the user may not use. The server responds to messages in order, so those
// that it has accepted before have their response, or will be resent.
func (l *link) handleDenied(err error) {
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	kind, subject := strings.ToLower(found[1]), found[2]
	denied := fmt.Errorf("%w: %s: permission denied for %s", errDenied, subject, kind)
	l.mu.Lock()
	var ended []call
	for id, c := range l.calls {
		if kind == "publish" && c.subject == subject || strings.HasPrefix(subject, l.inbox) {
			ended = append(ended, c)
			delete(l.calls, id)
		}
	}
	l.endBound(denied)
	l.mu.Unlock()
	for _, c := range ended {
		c.done(nil, denied)
	}
}

func (l *link) handleClosed(err error) {
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	l.fail(err)
}

// fail ends the link and all calls.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.lost != nil {
		l.mu.Unlock()
		return
	}
	l.lost = fmt.Errorf("%w: %s: %w", lane.ErrConnection, l.server, err)
	if isAccess(err) {
		l.lost = fmt.Errorf("%w: %w", errAccess, l.lost)
	}
	lost, calls := l.lost, l.calls
	l.calls = nil
	l.endBound(lost)
	close(l.ended)
	l.mu.Unlock()
	l.network.Close() // also ends a write that blocks
	for _, c := range calls {
		c.done(nil, lost)
	}
}

// endBound ends the contexts of bind. l.mu is held.
func (l *link) endBound(cause error) {
	for _, cancel := range l.bound {
		cancel(cause)
	}
}

// close ends the link and waits for its goroutines.
func (l *link) close() {
	l.fail(nats.ErrConnectionClosed)
	l.conn.Close()
	l.finished.Wait()
}

// watch ends calls that have no response in time. If nothing was heard meanwhile, it asks whether the server is still there.
func (l *link) watch() {
	tick := time.NewTicker(min(checkInterval, l.timeout/4))
	defer tick.Stop()
	for {
		select {
		case <-l.ended:
			return
		case now := <-tick.C:
			expired, silent := l.expire(now)
			for _, c := range expired {
				c.done(nil, errTimeout)
			}
			if silent && l.conn.FlushTimeout(l.timeout) != nil {
				l.fail(errors.New("the server does not respond"))
			}
		}
	}
}

// expire returns the calls whose time is over, and whether the server has not responded to anything since the last of them.
func (l *link) expire(now time.Time) (expired []call, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.oldest < l.next; l.oldest++ {
		c, ok := l.calls[l.oldest]
		if !ok {
			continue
		}
		if now.Sub(c.at) < l.timeout {
			break
		}
		delete(l.calls, l.oldest)
		expired = append(expired, c)
		silent = l.heardAt.Before(c.at)
	}
	return expired, silent
}

// bind returns a context that also ends when the link is lost or the user lacks a permission. Its cause is that error.
func (l *link) bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		cancel(l.lost)
	}
	id := l.next
	l.next++
	l.bound[id] = cancel
	return bound, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bound, id)
		cancel(nil)
	}
}

// call calls f, which uses l.js, with a context that ends after the timeout, when the link is lost, and when the user lacks
// a permission. call then returns that error.
func (l *link) call(ctx context.Context, f func(ctx context.Context) error) error {
	bound, release := l.bind(ctx)
	defer release()
	limited, stop := context.WithTimeoutCause(bound, l.timeout, errTimeout)
	defer stop()
	err := f(limited)
	if err != nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}
