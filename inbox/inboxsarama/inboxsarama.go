// Package inboxsarama runs an [inbox.Processor] as a member of a consumer group, with sarama.
//
//	cfg := sarama.NewConfig()
//	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
//	group, err := sarama.NewConsumerGroup([]string{"kafka:9092"}, "notifications", cfg)
//	...
//	err = inboxsarama.Run(ctx, processor, group, []string{"outbox.event.order"})
//
// [Run] is all that most services need. If you call Consume yourself, use [NewHandler] and also call the
// Run method of the processor, because otherwise failed events are never retried.
//
// # Settings
//
// Set Consumer.Offsets.Initial to sarama.OffsetOldest. With sarama's default a new group skips the
// records that are in the topics already. Leave Consumer.Offsets.AutoCommit.Enable on: an offset is
// marked after the transaction in which its record was handled or stored in the inbox, and sarama
// commits marked offsets. Keep Config.Grace of the processor below Consumer.Group.Rebalance.Timeout.
//
// # Rebalances
//
// When you close the group, the other members get its partitions at once. If the process is killed,
// they get them after Consumer.Group.Session.Timeout, 10 s by default. To restart an instance without
// a rebalance, give each instance a name of its own in Consumer.Group.InstanceId (static membership):
// it keeps its partitions if it is back within the session timeout.
package inboxsarama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// Event returns the event of a record, without ID and Type. Those are set by [inbox.Processor.Handle],
// or by [inbox.Event.ParseHeaders].
func Event(m *sarama.ConsumerMessage) inbox.Event {
	e := inbox.Event{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Payload: m.Value,
		Headers: make([]inbox.Header, 0, len(m.Headers)),
	}
	for _, h := range m.Headers {
		e.Headers = append(e.Headers, inbox.Header{Name: string(h.Key), Value: h.Value})
	}
	return e
}

// Run consumes topics as a member of group, and runs p, until ctx is done. Then it waits until the
// running handlers have finished, or until Config.Grace of p is over, and returns nil. The caller
// closes the group afterwards.
//
// Run continues through rebalances, and while brokers are unavailable or a topic does not exist. It
// returns an error that a retry cannot fix: from p.Handle or p.Run, or if the group is closed or has
// no right to read.
func Run(ctx context.Context, p *inbox.Processor, group sarama.ConsumerGroup, topics []string) error {
	if group == nil {
		return errors.New("inboxsarama: the consumer group is nil")
	}
	if len(topics) == 0 {
		return errors.New("inboxsarama: there are no topics")
	}
	p.Logger().InfoContext(ctx, "inbox: joining the consumer group", slog.Any("topics", topics))
	h := &handler{p: p}
	consume := func(ctx context.Context) error { return h.consume(ctx, group, topics) }
	trouble := func(ctx context.Context, err error) { h.logTrouble(ctx, topics, err) }
	return sessions.Run(ctx, p.Run, func(ctx context.Context) error { return sessions.Repeat(ctx, consume, trouble) })
}

// consume consumes topics until the group rebalances, ctx is done or something fails.
func (h *handler) consume(ctx context.Context, group sarama.ConsumerGroup, topics []string) error {
	err := group.Consume(ctx, topics, h)
	if failure := h.failure(); failure != nil {
		return sessions.Final(failure)
	}
	if lasting(err) {
		return sessions.Final(fmt.Errorf("inboxsarama: consume %v: %w", topics, err))
	}
	return err
}

// lasting reports whether a retry must fail too.
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

// NewHandler returns a handler for the Consume method of a sarama.ConsumerGroup. If p.Handle returns an
// error, the session ends, and sarama logs the error or, with Consumer.Return.Errors, sends it to Errors().
func NewHandler(p *inbox.Processor) sarama.ConsumerGroupHandler { return &handler{p: p} }

type handler struct {
	p *inbox.Processor

	mu      sync.Mutex
	err     error  // that ended a session
	trouble string // the error that was logged last; empty while a session is open
}

func (h *handler) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// logTrouble logs why there is no session, once for each error.
func (h *handler) logTrouble(ctx context.Context, topics []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trouble == err.Error() {
		return
	}
	h.trouble = err.Error()
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		h.p.Logger().WarnContext(ctx, "inbox: topic does not exist, waiting for it", slog.Any("topics", topics))
		return
	}
	h.p.Logger().WarnContext(ctx, "inbox: consumer group unavailable, retrying", slog.Any("err", err))
}

// Setup logs the assigned partitions.
func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = ""
	h.p.Logger().InfoContext(session.Context(), "inbox: partitions assigned", slog.Any("partitions", session.Claims()))
	return nil
}

// Cleanup logs the partitions that are given back, because the group rebalances or Run returns.
func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.p.Logger().InfoContext(session.Context(), "inbox: partitions revoked", slog.Any("partitions", session.Claims()))
	return nil
}

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
		err := h.p.Handle(ctx, Event(m))
		if err != nil && ctx.Err() != nil {
			return nil //nolint:nilerr // the next owner of the partition handles the record
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
