package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A transport is the [lane.Transport] of a client. It collects the requests of each destination, and has a goroutine
// for each batch in flight.
type transport struct {
	client *client
	flying sync.WaitGroup // batches and timers

	mu    sync.Mutex
	feeds map[string]*feed // by destination
}

func newTransport(c *client) *transport { return &transport{client: c, feeds: make(map[string]*feed)} }

// Publish implements [lane.Transport]. It does not block.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	touched := make(map[*feed]struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range requests {
		f, err := t.feed(r.Records[0].Topic)
		if err != nil {
			r.Done(0, err)
			continue
		}
		p := &pending{request: r, message: newMessage(r.Records[0], f.to.fifo, t.client.token)}
		if size, limit := p.message.size, t.client.cfg.MaxBytes; size > limit {
			r.Done(0, &sink.RecordError{Size: size, Limit: limit, TooLarge: true, Code: "MessageTooLong", Reason: errTooLarge})
			continue
		}
		f.waiting = append(f.waiting, p)
		touched[f] = struct{}{}
	}
	for f := range touched {
		t.sendBatches(ctx, f, false)
	}
}

// feed returns the feed of a destination. t.mu is held.
func (t *transport) feed(destination string) (*feed, error) {
	f := t.feeds[destination]
	if f == nil {
		to, err := ParseDestination(destination)
		if err != nil {
			return nil, fmt.Errorf("%w: the destination %w", sink.ErrMissing, err)
		}
		f = &feed{name: destination, to: to, limit: float64(t.client.cfg.Batches)}
		t.feeds[destination] = f
	}
	return f, nil
}

var errTooLarge = errors.New("MessageTooLong: body and attributes are larger than sink.sqs.max_message_bytes")

// sendBatches starts the batches of f that can leave. allowPartial: a batch need not be full, because its messages have waited
// for others. t.mu is held.
func (t *transport) sendBatches(ctx context.Context, f *feed, allowPartial bool) {
	ended := ctx.Err() != nil
	for {
		batch := f.cut(t.client.cfg.MaxBytes, allowPartial || ended)
		if batch == nil {
			break
		}
		partial := len(batch) < maxEntries && len(f.waiting) == 0
		if partial {
			f.partialAt = time.Now()
		}
		t.flying.Go(func() { t.deliver(ctx, f, batch, partial) })
	}
	if len(f.waiting) > 0 && f.flying < int(f.limit) && !f.timing {
		f.timing = true
		t.after(linger, func() { t.sendPartial(ctx, f) })
	}
}

// after calls fn after a time, in a goroutine for which Close waits. stop keeps it from being called.
func (t *transport) after(d time.Duration, fn func()) (stop func()) {
	t.flying.Add(1)
	timer := time.AfterFunc(d, func() {
		defer t.flying.Done()
		fn()
	})
	return func() {
		if timer.Stop() {
			t.flying.Done()
		}
	}
}

// sendPartial is called when messages of f have waited for others: they leave, unless the last batch that was not full has
// no response yet.
func (t *transport) sendPartial(ctx context.Context, f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.timing = false
	if wait := partialWait - time.Since(f.partialAt); wait > 0 && !f.partialAt.IsZero() && ctx.Err() == nil {
		return // its response, or deliver's timer, calls sendBatches
	}
	t.sendBatches(ctx, f, true)
}

// deliver sends a batch and reports the outcome of each request.
func (t *transport) deliver(ctx context.Context, f *feed, batch []*pending, partial bool) {
	stop := func() {}
	if partial {
		stop = t.after(partialWait, func() { t.sendPartial(ctx, f) })
	}
	outcomes := t.client.send(ctx, f.to, batch)
	wasThrottled := false
	for i, p := range batch {
		if e, ok := errors.AsType[*codeError](outcomes[i]); ok && e.class() == throttled {
			wasThrottled = true
		}
		stored := 1
		if outcomes[i] != nil {
			stored = 0
		}
		p.request.Done(stored, outcomes[i])
	}
	stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	f.landed(wasThrottled, t.client.cfg.Batches)
	if partial {
		f.partialAt = time.Time{}
	}
	t.sendBatches(ctx, f, false)
	if f.flying == 0 && len(f.waiting) == 0 && f.limit >= float64(t.client.cfg.Batches) {
		delete(t.feeds, f.name) // rows may name any number of destinations
	}
}

// Close implements [lane.Transport].
func (t *transport) Close() error {
	t.flying.Wait()
	t.client.http.CloseIdleConnections()
	return nil
}

// hostOf returns the host:port of an endpoint.
func hostOf(endpoint string) string {
	scheme, host, _ := strings.Cut(endpoint, "://")
	host, _, _ = strings.Cut(host, "/")
	switch {
	case strings.Contains(host, ":"):
		return host
	case scheme == "http":
		return host + ":80"
	}
	return host + ":443"
}
