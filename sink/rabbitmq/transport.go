package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// maxRemembered limits the exchanges, and the destinations, of which a transport remembers whether it may write to them: rows
// may choose any number. A message for any other travels alone.
const maxRemembered = 1000

// A transport implements lane.Transport.
type transport struct {
	cfg     Config
	base    *lane.Base
	log     *slog.Logger
	servers *dialer

	// Only the goroutine that calls Publish and Close uses these.
	turn    int // the link for the next message
	headers amqp.Table
	stop    func() bool // of the context of Publish; nil before the first call

	jobs sync.WaitGroup // goroutines of messages that travel alone

	mu     sync.Mutex
	links  []*link              // nil: not connected; only the goroutine that calls Publish and Close changes them
	known  map[string]bool      // exchanges to which a message was written
	denied map[destination]bool // to which the user may not write, although he may write to the exchange
	tooBig int                  // the smallest body that the broker has rejected; 0: none
}

func newTransport(cfg Config, base *lane.Base, log *slog.Logger) *transport {
	return &transport{
		cfg: cfg, base: base, log: log, servers: cfg.newDialer(), links: make([]*link, cfg.Connections), headers: make(amqp.Table),
		known: make(map[string]bool), denied: make(map[destination]bool),
	}
}

// Publish implements lane.Transport.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	if t.stop == nil {
		t.stop = context.AfterFunc(ctx, t.servers.network.Close)
	}
	defer t.uncork()
	for i, r := range requests {
		l, err := t.link(ctx)
		if errors.Is(err, lane.ErrConnection) {
			for _, r := range requests[i:] {
				r.Done(0, err)
			}
			return
		}
		if err == nil {
			err = r.Fence() // to get a link, and to write the messages before, may take long
		}
		if err != nil {
			r.Done(0, err)
			continue
		}
		t.write(l, r)
	}
}

func (t *transport) uncork() {
	for _, l := range t.links {
		if l != nil {
			l.wire.uncork()
		}
	}
}

// link returns a corked link for the next message. It connects if necessary, and waits a little if the broker blocks the
// connection.
func (t *transport) link(ctx context.Context) (l *link, err error) {
	i := t.turn
	t.turn = (t.turn + 1) % len(t.links)
	if l = t.links[i]; l == nil || l.IsClosed() {
		t.uncork()
		if l, err = t.connect(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := l.awaitUnblocked(ctx); err != nil {
		return nil, err
	}
	if l.shared != nil && l.shared.isNacking() {
		l.shared.retire()
		l.shared = nil
	}
	if l.shared == nil || l.shared.IsClosed() {
		l.wire.uncork()
		l.shared, err = l.openChannel(outstanding, func(f *flight, o outcome, cause *codeError) { t.settleShared(l, f, o, cause) })
		if err != nil {
			return nil, t.channelError(l, err)
		}
	}
	l.wire.cork()
	return l, nil
}

// connect makes the connection of a link, or replaces a lost one.
func (t *transport) connect(ctx context.Context, i int) (*link, error) {
	k, err := t.servers.connectAny(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	if before := t.links[i]; before != nil {
		before.wait()
		t.base.Reconnected()
	}
	l := newLink(k, t.log)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links[i] = l
	return l, nil
}

// write writes the message of r, or lets it travel alone.
func (t *transport) write(l *link, r *lane.Request) {
	m, err := newMessage(r.Records[0], t.cfg.ContentType, t.headers)
	if err != nil {
		r.Done(0, err)
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
	if l.IsClosed() {
		return fmt.Errorf("%w: %s: %w", lane.ErrConnection, l.addr, errLost)
	}
	return fmt.Errorf("%s: %w", l.addr, brokerError(err))
}

// Close implements lane.Transport.
func (t *transport) Close() error {
	t.jobs.Wait()
	for _, l := range t.links {
		if l != nil {
			l.close()
			l.wait()
		}
	}
	if t.stop != nil {
		t.stop()
	}
	return nil
}
