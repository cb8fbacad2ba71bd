package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A transport implements [lane.Transport] over one connection at a time.
type transport struct {
	cfg     Config
	base    *lane.Base
	encoder encoder
	link    *link       // nil: not connected
	stop    func() bool // ends the watch for the end of ctx
	lookups lookups
}

func newTransport(cfg Config, base *lane.Base) *transport {
	return &transport{cfg: cfg, base: base, lookups: lookups{waiting: make(map[string][]func(error))}}
}

// Publish implements [lane.Transport].
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
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
	l := t.link
	// nats.go uses the headers and the value during the call only, because it never sends the message again.
	err := l.publish(&nats.Msg{Subject: rec.Topic, Header: t.encoder.encode(rec), Data: rec.Value}, func(err error) { t.handle(ctx, l, r, err) })
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrMaxPayload):
		r.Done(0, &sink.RecordError{TooLarge: true, Limit: int(l.conn.MaxPayload()), Reason: errPayload})
	case isMessageError(err):
		r.Done(0, &sink.RecordError{BadHeader: errors.Is(err, nats.ErrBadHeaderMsg), Reason: err})
	default:
		r.Done(0, err)
	}
}

var errPayload = errors.New("larger than max_payload of the server")

// handle reports the outcome of a request.
func (t *transport) handle(ctx context.Context, l *link, r *lane.Request, err error) {
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		t.lookups.start(ctx, l, r.Records[0].Topic, func(err error) { r.Done(0, err) })
	case err != nil:
		r.Done(0, outcomeOf(err))
	default:
		r.Done(1, nil)
	}
}

// connect replaces the link.
func (t *transport) connect(ctx context.Context) error {
	again := t.link != nil
	t.disconnect()
	l, err := t.cfg.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	t.link, t.stop = l, context.AfterFunc(ctx, func() { l.fail(context.Cause(ctx)) })
	if again {
		t.base.Reconnected()
	}
	return nil
}

func (t *transport) disconnect() {
	if t.link != nil {
		t.stop()
		t.link.close()
	}
}

// Close implements [lane.Transport].
func (t *transport) Close() error {
	t.disconnect()
	t.lookups.running.Wait()
	return nil
}
