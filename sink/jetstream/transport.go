package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A transport implements [lane.Transport] over one connection at a time.
type transport struct {
	cfg     Config
	base    *lane.Base
	encoder encoder
	message nats.Msg // of the current Publish
	link    *link    // nil: not connected
	stop    func() bool

	lookups lookups

	mu      sync.Mutex
	current *link // the link, for the end of ctx
	over    error // ctx has ended
}

// Publish implements [lane.Transport].
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	if t.stop == nil {
		t.stop = context.AfterFunc(ctx, func() { t.end(context.Cause(ctx)) })
	}
	if t.link == nil || t.link.failure() != nil {
		if err := t.connect(ctx); err != nil {
			for _, r := range requests {
				r.Done(0, err)
			}
			return
		}
	}
	for _, r := range requests {
		if err := r.Fence(); err != nil { // to connect, and to write the requests before, may take long
			r.Done(0, err)
			continue
		}
		t.publish(ctx, r)
	}
}

// publish writes one request.
func (t *transport) publish(ctx context.Context, r *lane.Request) {
	rec := r.Records[0] // Options.RequestRecords is 1
	t.message = nats.Msg{Subject: rec.Topic, Header: t.encoder.encode(rec), Data: rec.Value}
	l := t.link
	err := l.publish(&t.message, func(m *nats.Msg, err error) { t.handle(ctx, l, r, m, err) })
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrMaxPayload):
		r.Done(0, &sink.RecordError{TooLarge: true, Limit: int(l.conn.MaxPayload()), Reason: errPayload})
	case isMessageError(err):
		r.Done(0, &sink.RecordError{Reason: err})
	default:
		r.Done(0, err)
	}
}

var errPayload = errors.New("larger than max_payload of the server")

// handle reports the outcome of a request.
func (t *transport) handle(ctx context.Context, l *link, r *lane.Request, m *nats.Msg, err error) {
	if errors.Is(err, errNoResponders) {
		t.lookups.start(ctx, l, r.Records[0].Topic, func(err error) { r.Done(0, err) })
		return
	}
	if err == nil {
		err = parseAck(m.Data)
	}
	if err != nil {
		r.Done(0, err)
		return
	}
	r.Done(1, nil)
}

// connect replaces the link.
func (t *transport) connect(ctx context.Context) error {
	again := t.link != nil
	if again {
		t.link.close()
	}
	l, err := t.cfg.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	t.link = l
	t.mu.Lock()
	t.current = l
	over := t.over
	t.mu.Unlock()
	if over != nil {
		l.fail(over)
	}
	if again {
		t.base.Reconnected()
	}
	return nil
}

// end ends the requests that have no outcome.
func (t *transport) end(cause error) {
	t.mu.Lock()
	t.over = cause
	l := t.current
	t.mu.Unlock()
	if l != nil {
		l.fail(cause)
	}
}

// Close implements [lane.Transport].
func (t *transport) Close() error {
	if t.stop != nil {
		t.stop()
	}
	if t.link != nil {
		t.link.close()
	}
	t.lookups.wait()
	return nil
}
