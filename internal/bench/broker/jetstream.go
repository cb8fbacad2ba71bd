package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
)

// jetStream is NATS JetStream. Each measurement has a stream of its own, because a stream drops rows that it has had before.
type jetStream struct{ cfg jetstream.Config }

func jetStreamError(doing string, err error) error {
	return failed(doing, err, "Check sink.jetstream.servers, and that its user may create, read and delete streams and buckets named "+measure.TopicPrefix+"*.")
}

// connect returns a connection that is not made again if it is lost.
func (b jetStream) connect(ctx context.Context) (*nats.Conn, natsjs.JetStream, error) {
	login, err := natsLogin(ctx, b.cfg.Credentials)
	if err != nil {
		return nil, nil, err
	}
	options := []nats.Option{
		login, nats.Name(measure.ClientID), nats.NoReconnect(), nats.Timeout(measure.ContactTimeout), nats.CustomInboxPrefix(b.cfg.InboxPrefix),
	}
	if b.cfg.TLS != nil {
		encryption, err := b.cfg.TLS()
		if err != nil {
			return nil, nil, err
		}
		options = append(options, nats.Secure(encryption))
	}
	conn, err := nats.Connect(strings.Join(b.cfg.Servers, ","), options...)
	if err != nil {
		return nil, nil, jetStreamError("reach a server", err)
	}
	js, err := natsjs.New(conn)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, js, nil
}

// natsLogin returns the option that logs in.
func natsLogin(ctx context.Context, c *jetstream.Credentials) (nats.Option, error) {
	switch {
	case c == nil:
		return func(*nats.Options) error { return nil }, nil
	case c.Password != nil:
		password, err := c.Password(ctx)
		return nats.UserInfo(c.User, password), err
	case c.Token != nil:
		token, err := c.Token(ctx)
		return nats.Token(token), err
	case c.Seed != nil:
		seed, err := c.Seed(ctx)
		if err != nil {
			return nil, err
		}
		pair, err := nkeys.FromSeed([]byte(seed))
		if err != nil {
			return nil, err
		}
		public, err := pair.PublicKey()
		return nats.Nkey(public, pair.Sign), err
	}
	file, err := c.File(ctx)
	if err != nil {
		return nil, err
	}
	return nats.UserCredentialBytes(file), nil
}

// Library implements Broker.
func (jetStream) Library() string { return "nats.go, PublishMsgAsync" }

// List implements measure.Broker.
func (b jetStream) List(ctx context.Context) ([]string, error) {
	conn, js, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return streamNames(ctx, js, measure.TopicPrefix)
}

// streamNames returns the streams, and the streams of buckets, whose names begin with a prefix.
func streamNames(ctx context.Context, js natsjs.JetStream, prefix string) ([]string, error) {
	var all []string
	list := js.StreamNames(ctx)
	for n := range list.Name() {
		if strings.HasPrefix(strings.TrimPrefix(n, bucketPrefix), prefix) {
			all = append(all, n)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, natsjs.ErrEndOfData) {
		return nil, jetStreamError("list the streams", err)
	}
	return all, nil
}

// bucketPrefix begins the name of the stream of a key-value bucket.
const bucketPrefix = "KV_"

// DropCommand implements measure.Broker.
func (jetStream) DropCommand(prefix string) string {
	return fmt.Sprintf("nats stream ls --all --names | grep %s | xargs -n 1 nats stream rm --force", name(prefix))
}

// Open implements measure.Broker.
func (b jetStream) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	conn, js, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &natsStreams{conn: conn, js: js, layout: l}, nil
}

type natsStreams struct {
	conn   *nats.Conn
	js     natsjs.JetStream
	layout measure.Layout
	made   int
}

// Delete implements measure.Destinations.
func (n *natsStreams) Delete(ctx context.Context) error {
	left, err := streamNames(ctx, n.js, name(n.layout.Prefix))
	for _, stream := range left {
		err = errors.Join(err, n.js.DeleteStream(ctx, stream))
	}
	return err
}

// Close implements measure.Destinations.
func (n *natsStreams) Close() { n.conn.Close() }

// Observe implements measure.Destinations.
func (n *natsStreams) Observe(ctx context.Context) (measure.Stream, error) {
	n.made++
	subjects := fmt.Sprintf("%s%d.", n.layout.Prefix, n.made)
	stream, err := n.js.CreateStream(ctx, natsjs.StreamConfig{
		Name: fmt.Sprintf("%s-%d", name(n.layout.Prefix), n.made), Subjects: []string{subjects + ">"},
	})
	if err != nil {
		return nil, jetStreamError("create a stream", err)
	}
	consumer, err := stream.OrderedConsumer(ctx, natsjs.OrderedConsumerConfig{})
	if err != nil {
		return nil, jetStreamError("create a consumer", err)
	}
	messages, err := consumer.Messages(natsjs.PullMaxMessages(natsPull))
	if err != nil {
		return nil, jetStreamError("consume", err)
	}
	return &natsStream{
		streams: n, stream: stream, messages: messages, template: subjects + route, names: names(subjects+route, n.layout.Topics),
	}, nil
}

// natsPull is the number of messages that the consumer asks for at once.
const natsPull = 10_000

type natsStream struct {
	streams  *natsStreams
	stream   natsjs.Stream
	messages natsjs.MessagesContext
	template string
	names    []string
	last     uint64 // sequence number
}

// Names implements measure.Stream.
func (s *natsStream) Names() []string { return s.names }

// Settings implements measure.Stream.
func (s *natsStream) Settings() map[string]any {
	return map[string]any{"outbox.topic": s.template, "position_topic": name(s.streams.layout.Prefix) + "-positions"}
}

// Poll implements measure.Stream.
func (s *natsStream) Poll(ctx context.Context, take measure.Take) error {
	m, err := s.messages.Next(natsjs.NextContext(ctx))
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is no error
	}
	if err != nil {
		return jetStreamError("consume", err)
	}
	now := time.Now()
	at, err := m.Metadata()
	if err != nil {
		return jetStreamError("consume", err)
	}
	s.last = at.Sequence.Stream
	take(now, delivery.Coordinates{Topic: m.Subject(), Offset: int64(s.last)}, []byte(m.Headers().Get(jetstream.KeyHeader)), m.Data())
	return nil
}

// End implements measure.Stream.
func (s *natsStream) End(ctx context.Context) (func() bool, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return nil, jetStreamError("find the end of the stream", err)
	}
	return func() bool { return s.last >= info.State.LastSeq }, nil
}

// Close implements measure.Stream.
func (s *natsStream) Close(ctx context.Context) error {
	s.messages.Stop()
	return s.streams.js.DeleteStream(ctx, s.stream.CachedInfo().Config.Name)
}

// Producer implements Broker.
func (b jetStream) Producer(ctx context.Context) (measure.Producer, error) {
	conn, _, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &natsProducer{}
	p.js, err = natsjs.New(conn, natsjs.WithPublishAsyncErrHandler(func(_ natsjs.JetStream, _ *nats.Msg, err error) { p.note(err) }))
	return p, err
}

// A natsProducer follows the library's example for asynchronous publishing, with its default of pending messages.
type natsProducer struct {
	js natsjs.JetStream
	outcome
}

const natsStall = 10 * time.Second

// Publish implements measure.Producer.
func (p *natsProducer) Publish(_ context.Context, messages []measure.Message) error {
	for i := range messages {
		m := &messages[i]
		header := nats.Header{
			"id": {m.ID}, "eventType": {m.Type}, jetstream.KeyHeader: {m.Key}, natsjs.MsgIDHeader: {m.ID},
			sink.TimestampHeader: {time.Now().UTC().Format(milliseconds)},
		}
		if _, err := p.js.PublishMsgAsync(&nats.Msg{Subject: m.Topic, Data: m.Payload, Header: header}, natsjs.WithStallWait(natsStall)); err != nil {
			return err
		}
	}
	return p.err()
}

// Wait implements measure.Producer.
func (p *natsProducer) Wait(ctx context.Context) error {
	select {
	case <-p.js.PublishAsyncComplete():
		return p.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
