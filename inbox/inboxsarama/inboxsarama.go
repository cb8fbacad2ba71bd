// Package inboxsarama handles the records of a sarama consumer group once each, by an
// [inbox.Processor].
//
// [Run] is all a service needs. [NewHandler] is for those who call Consume themselves; they also
// call the Processor's Run, or nothing is tried again.
//
// An offset is marked after the transaction in which its record was handled or put into the inbox,
// and sarama commits what is marked. So leave Consumer.Offsets.AutoCommit enabled, as it is by
// default, and set Consumer.Offsets.Initial to sarama.OffsetOldest: with the default a new group
// misses what is in the topics already. When a partition is revoked its handler has the Processor's
// Config.Grace to finish: keep that below Consumer.Group.Rebalance.Timeout.
package inboxsarama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// Config is for what is unusual; the zero value serves records of the relay.
type Config struct {
	// Event makes an event of a record. Nil means the function Event. A record of which it makes
	// none, with an error, ends Run: it would stay unprocessed.
	Event func(*sarama.ConsumerMessage) (inbox.Event, error)
	// Log receives what keeps the group from consuming for a while. Nil means nobody.
	Log *slog.Logger
}

// Event returns the event of a record as the relay makes it: id and type are headers. The error is an
// [*inbox.EventError].
func Event(m *sarama.ConsumerMessage) (inbox.Event, error) {
	e := inbox.Event{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Payload: m.Value,
	}
	headers := make([]inbox.Header, 0, len(m.Headers))
	for _, h := range m.Headers {
		headers = append(headers, inbox.Header{Name: string(h.Key), Value: h.Value})
	}
	return e, e.ParseRecord(headers)
}

// Run consumes topics as a member of group, and runs p, until ctx is done; then it returns nil once
// the handlers that run have finished, or Config.Grace of p is over. It goes on through rebalances
// and while brokers cannot be reached. It returns an error for what p.Handle and p.Run cannot get
// over, and when the group is closed or may not read. The caller closes the group afterwards.
func Run(ctx context.Context, group sarama.ConsumerGroup, topics []string, p *inbox.Processor, cfg Config) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	retries := make(chan error, 1)
	go func() { // waited for below
		err := p.Run(ctx)
		stop(err)
		retries <- err
	}()
	err := consume(ctx, group, topics, newHandler(p, cfg))
	stop(err)
	return errors.Join(err, <-retries)
}

// pause is how long Run waits after the group could not consume.
const pause = time.Second

func consume(ctx context.Context, group sarama.ConsumerGroup, topics []string, h *handler) error {
	for ctx.Err() == nil {
		err := group.Consume(ctx, topics, h)
		if failure := h.failure(); failure != nil {
			return failure
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if lasting(err) {
			return fmt.Errorf("consume: %w", err)
		}
		h.cfg.Log.WarnContext(ctx, "group does not consume, trying again", slog.Any("err", err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// lasting reports whether another try is in vain.
func lasting(err error) bool {
	for _, known := range []error{
		sarama.ErrClosedConsumerGroup, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed,
		sarama.ErrSASLAuthenticationFailed, sarama.ErrInvalidTopic, sarama.ErrInvalidGroupId,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, config := errors.AsType[sarama.ConfigurationError](err)
	return config
}

// NewHandler returns a handler for sarama's Consume. When p cannot get over an error the session
// ends, and the error goes where the group's errors go.
func NewHandler(p *inbox.Processor, cfg Config) sarama.ConsumerGroupHandler {
	return newHandler(p, cfg)
}

func newHandler(p *inbox.Processor, cfg Config) *handler {
	if cfg.Event == nil {
		cfg.Event = Event
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &handler{p: p, cfg: cfg}
}

type handler struct {
	p   *inbox.Processor
	cfg Config

	mu  sync.Mutex
	err error // why a session was ended
}

func (h *handler) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Setup does nothing.
func (h *handler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup does nothing.
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim handles the records of a partition until the session ends.
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ctx := session.Context()
	for {
		var m *sarama.ConsumerMessage
		select {
		case m = <-claim.Messages():
		case <-ctx.Done():
		}
		if m == nil {
			return nil
		}
		e, err := h.cfg.Event(m)
		if err == nil {
			err = h.p.Handle(ctx, e)
		}
		if err != nil && ctx.Err() != nil {
			return nil //nolint:nilerr // the record is another's now
		}
		if err != nil {
			h.mu.Lock()
			h.err = err
			h.mu.Unlock()
			return err
		}
		session.MarkMessage(m, "")
	}
}
