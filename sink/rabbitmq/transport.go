package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// fenceInterval is how long a result of the fence may be used for later messages of the same call of Publish.
const fenceInterval = time.Millisecond

// maxRemembered limits the exchanges, and the destinations, of which a transport remembers whether it may write to them: rows
// may choose any number. A message for any other travels alone.
const maxRemembered = 1000

// A transport implements lane.Transport.
type transport struct {
	cfg   Config
	stats *lane.Stats
	log   *slog.Logger

	// Only the goroutine that calls Publish uses these.
	links   []*link // nil: not connected
	turn    int     // the link for the next message
	server  int     // index of the server that the next connection attempts first
	headers amqp.Table

	jobs sync.WaitGroup // goroutines of messages that travel alone

	mu      sync.Mutex
	known   map[string]bool      // exchanges to which a message was written
	denied  map[destination]bool // to which the user may not write, although he may write to the exchange
	tooBig  int                  // the smallest body that the broker has rejected; 0: none
	open    map[*link]bool       // to close when Run ends
	stopped bool                 // the context of Publish has ended
	watched bool
}

func newTransport(cfg Config, stats *lane.Stats, log *slog.Logger) *transport {
	return &transport{
		cfg: cfg, stats: stats, log: log, links: make([]*link, cfg.Connections), headers: make(amqp.Table),
		known: make(map[string]bool), denied: make(map[destination]bool), open: make(map[*link]bool),
	}
}

// Publish implements lane.Transport.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	t.watch(ctx)
	asked := time.Now() // the Writer has just asked the fence
	defer t.uncork()
	for i, r := range requests {
		l, waited, err := t.link(ctx)
		if errors.Is(err, lane.ErrConnection) {
			for _, r := range requests[i:] {
				r.Done(0, err)
			}
			return
		}
		if err != nil {
			r.Done(0, err)
			continue
		}
		if now := time.Now(); waited || now.Sub(asked) > fenceInterval {
			if err := r.Fence(); err != nil {
				r.Done(0, err)
				continue
			}
			asked = now
		}
		t.write(l, r)
	}
}

// watch closes the connections when ctx ends.
func (t *transport) watch(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched {
		return
	}
	t.watched = true
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = true
		for l := range t.open {
			_ = l.wire.Close()
		}
	})
}

func (t *transport) uncork() {
	for _, l := range t.links {
		if l != nil {
			l.wire.uncork()
		}
	}
}

// link returns a corked link for the next message. It connects if necessary, and waits a little if the broker
// blocks the connection. It reports whether it has waited.
func (t *transport) link(ctx context.Context) (l *link, waited bool, err error) {
	i := t.turn
	t.turn = (t.turn + 1) % len(t.links)
	if l := t.links[i]; l == nil || l.isLost() {
		t.uncork()
		if t.links[i], err = t.connect(ctx); err != nil {
			return nil, true, err
		}
		waited = true
	}
	l = t.links[i]
	slept, err := l.awaitUnblocked(ctx)
	if ctx.Err() != nil {
		return nil, true, fmt.Errorf("%w: %w", lane.ErrConnection, context.Cause(ctx))
	}
	if err != nil {
		return nil, true, err
	}
	waited = waited || slept
	if l.shared != nil && l.shared.isNacking() {
		l.shared.retire()
		l.shared = nil
	}
	if l.shared == nil || l.shared.IsClosed() {
		l.wire.uncork()
		waited = true
		l.shared, err = l.openChannel(outstanding, func(f *flight, o outcome, cause *codeError) { t.settleShared(l, f, o, cause) })
		if err != nil {
			return nil, true, t.channelError(l, err)
		}
	}
	l.wire.cork()
	return l, waited, nil
}

// connect connects to the first server that responds, beginning with the one after the last.
func (t *transport) connect(ctx context.Context) (*link, error) {
	k, server, err := t.cfg.connectAny(ctx, t.server)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	t.server = (server + 1) % len(t.cfg.Servers)
	l := newLink(k, t.log)
	if !t.add(l) {
		return nil, fmt.Errorf("%w: %w", lane.ErrConnection, context.Cause(ctx))
	}
	return l, nil
}

// add makes l known to watch. It reports whether the Writer still runs.
func (t *transport) add(l *link) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		_ = l.wire.Close()
		return false
	}
	for old := range t.open {
		if old.isLost() {
			delete(t.open, old)
			t.stats.Reconnected()
		}
	}
	t.open[l] = true
	return true
}

// write writes the message of r, or lets it travel alone.
func (t *transport) write(l *link, r *lane.Request) {
	m, err := newMessage(r.Records[0], t.cfg.ContentType, t.headers)
	if err != nil {
		r.Done(0, &sink.RecordError{Reason: err})
		return
	}
	if err := m.check(l.Config.FrameSize, t.cfg.MaxMessageBytes); err != nil {
		r.Done(0, err)
		return
	}
	f := &flight{request: r, destination: m.destination, size: len(m.publishing.Body)}
	if t.isRisky(l, f) {
		t.sendAlone(l, f)
		return
	}
	if !l.shared.publish(f, &m) {
		r.Done(0, t.channelError(l, errClosed))
	}
}

// channelError returns the error of a message that could not be written to a channel.
func (t *transport) channelError(l *link, err error) error {
	if l.isLost() {
		return fmt.Errorf("%w: %s: %w", lane.ErrConnection, l.addr, errLost)
	}
	return fmt.Errorf("%s: %w", l.addr, brokerError(err))
}

// Close implements lane.Transport.
func (t *transport) Close() error {
	t.jobs.Wait()
	t.mu.Lock()
	open := t.open
	t.open, t.stopped = nil, true
	t.mu.Unlock()
	for l := range open {
		if !l.isLost() {
			l.close()
		}
		<-l.lost
		l.collectors.Wait()
	}
	return nil
}
