package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsstream "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

func jetStreamKind() kind {
	return kind{
		name: "jetstream", title: "NATS JetStream", from: "a NATS server in its process", connects: true,
		flags: "--nats host:4222", page: "docs/jetstream.md", open: openJetStream,
	}
}

func openJetStream(ctx context.Context, r *rig) (*broker, error) {
	b := &broker{addrs: r.opts.Brokers, details: given(r.opts), names: jetstream.Names{}, topic: r.names.prefix + route}
	if len(b.addrs) == 0 {
		srv, err := natstest.Launch()
		if err != nil {
			return nil, fmt.Errorf("start the NATS server: %w", err)
		}
		r.later(closing(srv.Stop))
		b.addrs = srv.Addrs
		b.details = "nats-server " + server.VERSION + ", in-process, on " + b.addrs[0]
	}
	conn, err := nats.Connect(strings.Join(b.addrs, ","), nats.Name(clientID), nats.Timeout(contactTimeout), nats.MaxReconnects(-1))
	if err != nil {
		return nil, unreachable(b, err)
	}
	r.later(closing(conn.Close))
	js, err := natsstream.New(conn)
	if err != nil {
		return nil, err
	}
	stream, err := js.CreateStream(ctx, natsstream.StreamConfig{
		Name: r.names.object, Subjects: []string{r.names.prefix + ">"}, MaxAge: remember, Duplicates: remember,
	})
	if err != nil {
		return nil, fmt.Errorf("create stream %s: %w", r.names.object, err)
	}
	r.laterAt(len(r.opts.Brokers) > 0, func(ctx context.Context) error {
		if err := js.DeleteStream(ctx, r.names.object); err != nil {
			return fmt.Errorf("delete stream %s: %w", r.names.object, err)
		}
		return nil
	})
	b.sink = jetstream.Config{Servers: b.addrs, Name: relayClientID}
	b.consume = func(ctx context.Context, take func(message)) error { return consumeStream(ctx, stream, take) }
	return b, nil
}

func consumeStream(ctx context.Context, stream natsstream.Stream, take func(message)) error {
	consumer, err := stream.OrderedConsumer(ctx, natsstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("create a consumer: %w", err)
	}
	failed := make(chan error, 1)
	consuming, err := consumer.Consume(func(m natsstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			select {
			case failed <- fmt.Errorf("read a message of %s: %w", m.Subject(), err):
			default:
			}
			return
		}
		h := m.Headers()
		take(message{
			destination: m.Subject(), key: h.Get("outbox_key"), id: h.Get(idHeader), kind: h.Get(typeHeader),
			offset: int64(meta.Sequence.Stream),
		})
	})
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	consuming.Stop()
	<-consuming.Closed()
	return err
}
