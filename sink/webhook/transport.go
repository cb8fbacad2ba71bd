package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// A transport is the [lane.Transport] of a Writer. It sends each request as one POST, and limits how many a server gets
// at the same time: others wait, so that a server that hangs does not delay another one.
type transport struct {
	client *client

	mu      sync.Mutex
	servers map[string]*server
	sending sync.WaitGroup
}

// A server is the requests to a server.
type server struct {
	sending int             // number of goroutines; at most Config.Concurrency
	waiting []*lane.Request // empty unless sending is at its maximum
}

// Publish implements [lane.Transport]. It does not block.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range requests {
		name := ""
		if at, illegal := t.client.addresses.find(r.Records[0].Topic); illegal == "" {
			name = at.server
		}
		s := t.servers[name]
		if s == nil {
			s = new(server)
			t.servers[name] = s
		}
		if s.sending == t.client.cfg.Concurrency {
			s.waiting = append(s.waiting, r)
			continue
		}
		s.sending++
		t.sending.Go(func() { t.send(ctx, name, s, r) })
	}
}

// send sends r, and then the requests that wait for the server.
func (t *transport) send(ctx context.Context, name string, s *server, r *lane.Request) {
	for r != nil {
		if err := t.client.deliver(ctx, r); err != nil {
			r.Done(0, err)
		} else {
			r.Done(1, nil)
		}
		r = t.next(name, s)
	}
}

// next returns the next request for the server. If there is none, the goroutine must end.
func (t *transport) next(name string, s *server) *lane.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.waiting) == 0 {
		if s.sending--; s.sending == 0 {
			delete(t.servers, name)
		}
		return nil
	}
	r := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	return r
}

// Close implements [lane.Transport].
func (t *transport) Close() error {
	t.sending.Wait()
	t.client.poster.closeIdle()
	return nil
}

// deliver sends the record of a request. The error is what Done of the request wants.
func (c *client) deliver(ctx context.Context, r *lane.Request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec := r.Records[0]
	at, illegal := c.addresses.find(rec.Topic)
	if illegal != "" {
		return &sink.RecordError{Reason: errors.New("the destination " + illegal)}
	}
	if left := c.pauses.left(rec.Topic, time.Now()); left > 0 {
		return &pausedError{fmt.Errorf("%s: not sent", at.url), left}
	}
	if err := r.Fence(); err != nil {
		return err
	}
	got, err := c.poster.post(network.WithFence(ctx, r.Fence), at, rec)
	switch {
	case err == nil:
		return c.judge(at, rec, got)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return requestError(at, err, c.addresses.single(), c.cfg.Timeout)
}

// judge returns the error for a response, nil for an acknowledgement.
func (c *client) judge(at *address, rec *sink.Record, got response) error {
	if got.code/100 == 2 {
		return nil // the usual case, without a search in the table
	}
	m := lookup(got.code)
	failed := &statusError{at.url.String(), got.code, m}
	switch m.class {
	case accepted:
		return nil
	case rejected:
		return &sink.RecordError{TooLarge: isTooLarge(got.code), Code: fmt.Sprint(got.code), Reason: fmt.Errorf("%s: %s", statusText(got.code), m.detail)}
	case retriable:
		if got.pause > 0 {
			now := time.Now()
			c.pauses.set(rec.Topic, now.Add(got.pause), now)
			return &pausedError{failed, got.pause}
		}
	case missing, denied:
	}
	return failed
}

// prepare checks a record before it is sent.
func (c *client) prepare(r *sink.Record) error {
	if limit := c.cfg.MaxPayloadBytes; limit > 0 && len(r.Value) > limit {
		return &sink.RecordError{Size: len(r.Value), Limit: limit, TooLarge: true, Reason: errTooLarge}
	}
	return nil
}
