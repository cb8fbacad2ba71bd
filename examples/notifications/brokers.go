package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxnats"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxrabbit"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxredis"
)

// consume handles the events of a broker until ctx is done. A service has one of these brokers, and so one of these clients.
func consume(ctx context.Context, processor *inbox.Processor, cfg config) error {
	scheme, _, _ := strings.Cut(cfg.brokers, "://")
	switch scheme {
	case "nats":
		return consumeNATS(ctx, processor, cfg)
	case "amqp":
		return consumeRabbitMQ(ctx, processor, cfg)
	case "redis":
		return consumeRedis(ctx, processor, cfg)
	case "https", "http":
		return consumeSQS(ctx, processor, cfg)
	}
	return inboxfranz.Run(ctx, processor, cfg.group, []string{cfg.topic}, kgo.SeedBrokers(strings.Split(cfg.brokers, ",")...),
		kgo.SessionTimeout(10*time.Second)) // after this time the others get the partitions of a killed instance
}

func consumeNATS(ctx context.Context, processor *inbox.Processor, cfg config) error {
	conn, err := nats.Connect(cfg.brokers, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	return inboxnats.Run(ctx, processor, inboxnats.Config{
		JetStream: js, Stream: cfg.stream, Durable: cfg.group, Subjects: []string{cfg.topic},
	})
}

func consumeRabbitMQ(ctx context.Context, processor *inbox.Processor, cfg config) error {
	return inboxrabbit.Run(ctx, processor, inboxrabbit.Config{
		Dial:     func() (*amqp.Connection, error) { return amqp.Dial(cfg.brokers) },
		Queue:    cfg.group,
		Bindings: []inboxrabbit.Binding{{Exchange: cfg.topic, RoutingKey: "#"}},
	})
}

func consumeRedis(ctx context.Context, processor *inbox.Processor, cfg config) error {
	options, err := redis.ParseURL(cfg.brokers)
	if err != nil {
		return fmt.Errorf("the URL of Redis: %w", err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }() // nothing is in flight
	return inboxredis.Run(ctx, processor, inboxredis.Config{Client: client, Group: cfg.group, Streams: []string{cfg.topic}})
}
