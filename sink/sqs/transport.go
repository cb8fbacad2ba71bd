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
	var rejected []*lane.Request
	var reasons []error
	t.mu.Lock()
	for _, r := range requests {
		f, p, err := t.place(r)
		if err != nil {
			rejected, reasons = append(rejected, r), append(reasons, err)
			continue
		}
		f.waiting = append(f.waiting, p)
		touched[f] = struct{}{}
	}
	for f := range touched {
		t.sendBatches(ctx, f, false)
	}
	t.mu.Unlock()
	for i, r := range rejected {
		r.Done(0, reasons[i])
	}
}

// place returns the feed for a request and the message of its record. t.mu is held.
func (t *transport) place(r *lane.Request) (*feed, *pending, error) {
	record := r.Records[0]
	f := t.feeds[record.Topic]
	if f == nil {
		to, err := ParseDestination(record.Topic)
		if err != nil {
			return nil, nil, &sink.RecordError{Code: "InvalidDestination", Reason: fmt.Errorf("the destination %w", err)}
		}
		f = &feed{name: record.Topic, to: to, limit: float64(t.client.cfg.Batches)}
		t.feeds[record.Topic] = f
	}
	p := &pending{request: r, message: newMessage(record, f.to.fifo, t.client.token)}
	if size, limit := p.message.size, t.client.cfg.MaxBytes; size > limit {
		return nil, nil, &sink.RecordError{Size: size, Limit: limit, TooLarge: true, Code: "MessageTooLong", Reason: errTooLarge}
	}
	return f, p, nil
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

// after calls fn after a time, in a goroutine for which Close waits.
func (t *transport) after(d time.Duration, fn func()) {
	t.flying.Add(1)
	time.AfterFunc(d, func() {
		defer t.flying.Done()
		fn()
	})
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
	var late *time.Timer
	if partial {
		t.flying.Add(1)
		late = time.AfterFunc(partialWait, func() {
			defer t.flying.Done()
			t.sendPartial(ctx, f)
		})
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
	if late != nil && late.Stop() {
		t.flying.Done()
	}
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
