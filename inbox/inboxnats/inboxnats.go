// Package inboxnats runs an [inbox.Processor] as a consumer of a stream of NATS JetStream, with nats.go.
//
//	err := inboxnats.Run(ctx, processor, inboxnats.Config{
//		JetStream: js, Stream: "OUTBOX", Durable: "notifications", Subjects: []string{"outbox.event.order"},
//	})
//
// # Acknowledgements
//
// A message is acknowledged after the transaction in which it was handled or stored in the inbox. While a handler runs, or
// the message waits for one, the adapter tells the server that it is in progress, so the server does not deliver it again.
// If the service crashes, the server delivers the message again after Config.AckWait.
//
// # Order
//
// JetStream delivers later messages while an earlier one waits for its redelivery. So the adapter does not rely on
// deliveries alone: if it may have missed one, it reads the stream from the first message that is not acknowledged. The
// server numbers the deliveries of a consumer, so the adapter notices when it has missed one, for example because another
// instance got it. Messages that were handled already are duplicates, which the inbox ignores.
//
// # Several instances
//
// All instances use the same durable consumer. The server delivers to one of them, and to another one if that one stops
// pulling messages for Config.PinnedTTL. If Run returns because its context ends, another instance gets the messages at
// once. To use more instances at a time, give each of them a stream or a durable consumer with other subjects. A server
// before NATS 2.11 delivers to all instances. Events stay in order, but every instance then handles most events.
//
// # Connection
//
// Connect with nats.MaxReconnects(-1). Otherwise the connection is closed after some attempts, and Run returns an error.
package inboxnats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// Config configures [Run]. JetStream, Stream and Durable are required.
type Config struct {
	JetStream jetstream.JetStream
	Stream    string
	// Durable is the name of the durable consumer, which all instances of the service share. If it does not exist, Run
	// creates it. It then starts at the beginning of the stream.
	Durable string
	// Subjects are the subjects to consume; they may have wildcards. Nil means all subjects of the stream. If the consumer
	// exists, it has subjects, and Run returns an error if they are others.
	Subjects []string
	// Concurrency is how many events are handled at the same time. They have different keys, and each uses a
	// connection of the pool. Zero means 4.
	Concurrency int
	// MaxAckPending is how many messages the server delivers before it gets acknowledgements. All of them can be in
	// memory. Zero means 200. It is used when Run creates the consumer.
	MaxAckPending int
	// AckWait is the time after which the server delivers a message again if this instance has crashed. Zero means 30 s.
	// It is used when Run creates the consumer.
	AckWait time.Duration
	// PinnedTTL is the time after which another instance gets the messages if this one has crashed. Zero means 15 s.
	// It is used when Run creates the consumer.
	PinnedTTL time.Duration
}

const (
	defaultConcurrency   = 4
	defaultMaxAckPending = 200
	defaultAckWait       = 30 * time.Second
	defaultPinnedTTL     = 15 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.JetStream == nil:
		return c, errors.New("inboxnats: Config.JetStream is nil")
	case c.Stream == "":
		return c, errors.New("inboxnats: Config.Stream is empty")
	case c.Durable == "":
		return c, errors.New("inboxnats: Config.Durable is empty")
	case c.Concurrency < 0 || c.MaxAckPending < 0 || c.AckWait < 0 || c.PinnedTTL < 0:
		return c, errors.New("inboxnats: a number of Config is negative")
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.MaxAckPending == 0 {
		c.MaxAckPending = defaultMaxAckPending
	}
	if c.AckWait == 0 {
		c.AckWait = defaultAckWait
	}
	if c.PinnedTTL == 0 {
		c.PinnedTTL = defaultPinnedTTL
	}
	return c, nil
}

// Run consumes messages and runs p, until ctx is done. Then it waits until the running handlers have finished, or until
// Config.Grace of p is over, and returns nil. Messages that are not handled go to another instance.
//
// Run continues while the server is unavailable or the stream does not exist. It returns an error that a retry cannot fix:
// from p.Handle or p.Run, if the connection is closed, or if the durable consumer has settings that could lose events.
func Run(ctx context.Context, p *inbox.Processor, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	c := &consumer{
		Config: cfg, p: p,
		log: &logger{log: p.Logger().With(slog.String("stream", cfg.Stream), slog.String("durable", cfg.Durable))},
	}
	c.log.joining(ctx)
	watch := func(ctx context.Context) error {
		c.log.watch(ctx, cfg.JetStream.Conn())
		return nil
	}
	return sessions.Run(ctx, c.consume, p.Run, watch)
}

// A consumer runs sessions with the durable consumer, one after the other.
type consumer struct {
	Config

	p   *inbox.Processor
	log *logger
}

const requestTimeout = 5 * time.Second

// consume runs sessions until ctx is done or an error is final.
func (c *consumer) consume(ctx context.Context) error {
	return sessions.Repeat(ctx, func(ctx context.Context) error {
		err := c.session(ctx)
		switch {
		case errors.Is(err, errRestart):
			return nil
		case isFinal(err):
			return sessions.Final(err)
		}
		return err
	}, c.log.trouble)
}

// isFinal reports whether a retry must fail too.
func isFinal(err error) bool {
	return errors.Is(err, jetstream.ErrNotPullConsumer) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrConnectionClosed) ||
		errors.Is(err, jetstream.ErrInvalidStreamName) || errors.Is(err, jetstream.ErrInvalidConsumerName) ||
		errors.Is(err, jetstream.ErrInvalidSubject)
}

// open returns the durable consumer. It creates one that does not exist.
func (c *consumer) open(ctx context.Context) (jetstream.Stream, jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := c.JetStream.Stream(ctx, c.Stream)
	if err != nil {
		return nil, nil, fmt.Errorf("inboxnats: look up the stream: %w", err)
	}
	durable, err := stream.Consumer(ctx, c.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		durable, err = stream.CreateConsumer(ctx, c.settings())
		if errors.Is(err, jetstream.ErrConsumerExists) { // another instance was faster
			durable, err = stream.Consumer(ctx, c.Durable)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("inboxnats: look up the consumer: %w", err)
	}
	if err := c.check(durable.CachedInfo().Config); err != nil {
		return nil, nil, sessions.Final(err)
	}
	return stream, durable, nil
}

// group is the priority group whose pinned client gets the messages.
const group = "inbox"

// settings returns the settings of a new durable consumer.
func (c *consumer) settings() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: c.Durable, FilterSubjects: c.Subjects, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait, MaxAckPending: c.MaxAckPending, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group}, PinnedTTL: c.PinnedTTL,
	}
}

// check returns an error if a durable consumer that exists could lose events.
func (c *consumer) check(has jetstream.ConsumerConfig) error {
	var problem string
	switch {
	case has.AckPolicy != jetstream.AckExplicitPolicy:
		problem = "does not have the ack policy explicit"
	case has.MaxDeliver > 0:
		problem = "has max_deliver, after which the server drops a message; remove it"
	case has.HeadersOnly:
		problem = "has headers_only, so messages have no payload"
	case len(c.Subjects) > 0 && !sameSubjects(c.Subjects, subjectsOf(has)):
		problem = "has other subjects than Config.Subjects; change one of them"
	default:
		return nil
	}
	return fmt.Errorf("inboxnats: consumer %q of stream %q %s", c.Durable, c.Stream, problem)
}

func subjectsOf(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

func sameSubjects(a, b []string) bool {
	set := make(map[string]bool)
	for _, s := range a {
		set[s] = true
	}
	for _, s := range b {
		if !set[s] {
			return false
		}
	}
	return len(a) == len(b)
}
