package inboxnats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/lanes"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// errRestart means that a new session is needed, and that there is nothing to log.
var errRestart = errors.New("the session with the consumer is over")

// A session is the time in which deliveries of one durable consumer are received. It starts with the first message that
// is not acknowledged.
type session struct {
	*consumer

	stream  jetstream.Stream
	durable jetstream.Consumer
	created time.Time
	lanes   *lanes.Group
	ended   chan error         // of capacity 1: why the deliveries ended
	msgs    chan jetstream.Msg // that are delivered and not received

	// Only the goroutine of run uses these.
	//
	// Each message up to the sequence number queued is in the lanes or was, or was acknowledged by another instance.
	queued uint64
	// The next delivery has the number next, if this session has got every delivery since all earlier messages were
	// queued. Else it is 0.
	next   uint64
	behind bool   // this is logged
	pin    string // of the server, as in the last message

	mu      sync.Mutex
	running map[uint64]*delivery // in the lanes, by sequence number in the stream
}

// A delivery is a message that is in the lanes.
type delivery struct{ msg jetstream.Msg } // the last one; nil if the message was read from the stream

// session receives messages until ctx is done or something fails.
func (c *consumer) session(ctx context.Context) error {
	stream, durable, err := c.open(ctx)
	if err != nil {
		return err
	}
	s := &session{
		consumer: c, stream: stream, durable: durable, created: durable.CachedInfo().Created, ended: make(chan error, 1),
		msgs: make(chan jetstream.Msg, c.MaxAckPending), running: make(map[uint64]*delivery),
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.lanes = lanes.New(ctx, c.Concurrency, c.MaxAckPending, c.p.Handle)
	deliveries, err := durable.Consume(
		func(m jetstream.Msg) {
			select {
			case s.msgs <- m:
			case <-ctx.Done():
			}
		},
		s.pullOptions()...)
	if err != nil {
		s.lanes.Close()
		return fmt.Errorf("inboxnats: consume: %w", err)
	}
	c.log.open(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.keepInProgress(ctx) })
	err = s.run(ctx)
	stop()
	deliveries.Stop()
	<-deliveries.Closed()
	s.lanes.Close()
	background.Wait()
	s.giveBack(context.WithoutCancel(ctx))
	if failure := s.lanes.Err(); failure != nil {
		return sessions.Final(failure)
	}
	return err
}

// pullOptions are such that the server gets a request often enough to keep this instance pinned.
func (s *session) pullOptions() []jetstream.PullConsumeOpt {
	const minExpiry, maxExpiry = time.Second, 5 * time.Second
	settings := s.durable.CachedInfo().Config
	options := []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessages(s.MaxAckPending), jetstream.ConsumeErrHandler(s.failed),
		jetstream.PullExpiry(max(minExpiry, min(settings.PinnedTTL/3, maxExpiry))),
	}
	if len(settings.PriorityGroups) > 0 {
		options = append(options, jetstream.PullPriorityGroup(settings.PriorityGroups[0]))
	}
	return options
}

// failed is called when deliveries fail. The client itself continues after most errors.
func (s *session) failed(_ jetstream.ConsumeContext, err error) {
	switch {
	case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, jetstream.ErrConsumerDeleted):
		err = errRestart // open finds out whether they still exist
	case errors.Is(err, jetstream.ErrConnectionClosed), errors.Is(err, jetstream.ErrBadRequest):
		err = fmt.Errorf("inboxnats: consume: %w", err)
	default:
		return
	}
	select {
	case s.ended <- err:
	default:
	}
}

// run receives messages until ctx is done or something fails.
func (s *session) run(ctx context.Context) error {
	for {
		select {
		case m := <-s.msgs:
			if err := s.receive(ctx, m); err != nil {
				return err
			}
		case err := <-s.ended:
			return err
		case <-s.lanes.Failed():
			return s.lanes.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// receive queues a message that was delivered, after all earlier ones.
func (s *session) receive(ctx context.Context, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("inboxnats: a delivery: %w", err)
	}
	if pin := m.Headers().Get("Nats-Pin-Id"); pin != "" {
		s.pin = pin
	}
	s.log.delivers(ctx, true)
	sequence := meta.Sequence.Stream
	if meta.Sequence.Consumer != s.next {
		if err := s.catchUp(ctx, sequence); err != nil {
			return err
		}
		s.next = 0
		// Messages are delivered in order the first time. So all before this one are queued, and the next new one
		// follows it.
		if meta.NumDelivered == 1 {
			s.next, s.behind = meta.Sequence.Consumer+1, false
		}
	} else {
		s.next++
	}
	if sequence > s.queued {
		e := event(m.Subject(), m.Headers(), m.Data(), sequence, meta.Timestamp)
		return s.queue(ctx, e, &delivery{m})
	}
	s.mu.Lock()
	d := s.running[sequence]
	if d != nil {
		d.msg = m
	}
	s.mu.Unlock()
	if d == nil { // it was handled
		return m.Ack()
	}
	return nil
}

// queue adds the event of the next message to the lanes.
func (s *session) queue(ctx context.Context, e inbox.Event, d *delivery) error {
	sequence := uint64(e.Offset)
	s.queued = sequence
	s.mu.Lock()
	s.running[sequence] = d
	s.mu.Unlock()
	return s.lanes.Add(ctx, e, func() {
		s.mu.Lock()
		m := d.msg
		delete(s.running, sequence)
		s.mu.Unlock()
		if m != nil {
			_ = m.Ack() // the server delivers the message again if it does not get this
		}
	})
}

// keepInProgress tells the server that messages in the lanes are in progress, until ctx is done.
func (s *session) keepInProgress(ctx context.Context) {
	ticker := time.NewTicker(max(s.durable.CachedInfo().Config.AckWait/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		for _, d := range s.running {
			if d.msg != nil {
				_ = d.msg.InProgress() // as for Ack
			}
		}
		s.mu.Unlock()
	}
}

// catchUp queues the messages before sequence that this session has not got: those after the last one that is queued or
// acknowledged.
func (s *session) catchUp(ctx context.Context, sequence uint64) error {
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	if !info.Created.Equal(s.created) || info.Delivered.Stream < s.queued {
		return errRestart // of a new or restored consumer: queued is about other messages
	}
	s.queued = max(s.queued, info.AckFloor.Stream)
	if s.queued+1 >= sequence {
		return nil
	}
	if !s.behind {
		s.log.catchUp(ctx, s.queued)
	}
	s.behind = true
	if err := s.read(ctx, sequence, subjectsOf(info.Config)); err != nil {
		return fmt.Errorf("inboxnats: read the stream: %w", err)
	}
	s.queued = max(s.queued, sequence-1)
	return nil
}

func (s *session) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := s.durable.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("inboxnats: look up the consumer: %w", err)
	}
	return info, nil
}

const (
	readWait  = time.Second // how long read waits for a message until it looks whether it still exists
	maxResets = 3           // how often the reader connects again; then there is a new session
	readerTTL = 30 * time.Second
)

// read queues the messages of the stream between queued and end. The message end was delivered, so a reader that has not
// reached it has not read all of them.
func (s *session) read(ctx context.Context, end uint64, subjects []string) error {
	reader, err := s.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.queued + 1,
		MaxResetAttempts: maxResets, InactiveThreshold: readerTTL,
	})
	if err != nil {
		return err
	}
	messages, err := reader.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(readWait))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrTimeout):
			if _, err := s.stream.GetMsg(ctx, end); errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		e, err := Event(m)
		if err != nil {
			return err
		}
		if uint64(e.Offset) >= end {
			return nil
		}
		if err := s.queue(ctx, e, &delivery{}); err != nil {
			return err
		}
	}
}

// giveBack makes the server deliver at once what was not handled, and unpins this instance.
func (s *session) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.log.delivers(ctx, false)
	for _, sequence := range slices.Sorted(maps.Keys(s.running)) {
		if m := s.running[sequence].msg; m != nil {
			_ = m.Nak() // else the server delivers it after AckWait
		}
	}
	for len(s.msgs) > 0 {
		_ = (<-s.msgs).Nak() // as above
	}
	conn := s.JetStream.Conn()
	if !conn.IsConnected() || s.pin == "" {
		return
	}
	_ = conn.FlushWithContext(ctx) // as above
	info, err := s.durable.Info(ctx)
	if err != nil {
		return
	}
	for _, g := range info.PriorityGroups {
		if g.PinnedClientID == s.pin {
			_ = s.stream.UnpinConsumer(ctx, s.Durable, g.Group) // else another instance is pinned after PinnedTTL
		}
	}
}
