package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

const partitions = 4 // of a topic

func kafkaKind() kind {
	return kind{
		name: "kafka", title: "Kafka", from: "a compatible broker in its process", connects: true,
		flags: "--brokers host:9092", page: "README.md", open: openKafka,
	}
}

func openKafka(ctx context.Context, r *rig) (*broker, error) {
	b := &broker{addrs: r.opts.Brokers, details: given(r.opts), names: kafka.Names{}, topic: r.names.prefix + route}
	if len(b.addrs) == 0 {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{
			"log.cleaner.backoff.ms": "10000", // how often kfake applies retention, to whole segments
			"log.segment.bytes":      "1048576",
		}))
		if err != nil {
			return nil, fmt.Errorf("start kfake: %w", err)
		}
		r.later(closing(cluster.Close))
		b.addrs = cluster.ListenAddrs()
		b.details = "kfake, in this process, on " + b.addrs[0]
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ClientID(clientID))
	if err != nil {
		return nil, err
	}
	r.later(closing(client.Close))
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		return nil, unreachable(b, err)
	}
	if err := createTopics(ctx, r, kadm.NewClient(client), b.destinations()); err != nil {
		return nil, err
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(b.addrs...), kgo.ClientID(clientID),
		kgo.ConsumeTopics(b.destinations()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	r.later(closing(consumer.Close))
	b.sink = kafka.Config{Brokers: b.addrs, ClientID: relayClientID}
	b.consume = func(ctx context.Context, take func(message)) error { return pollTopics(ctx, consumer, take) }
	return b, nil
}

func createTopics(ctx context.Context, r *rig, admin *kadm.Client, topics []string) error {
	retention := strconv.FormatInt(remember.Milliseconds(), 10) // limits the memory of a long demo
	for _, topic := range topics {
		if _, err := admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		r.laterAt(len(r.opts.Brokers) > 0, func(ctx context.Context) error {
			if _, err := admin.DeleteTopic(ctx, topic); err != nil {
				return fmt.Errorf("delete topic %s: %w", topic, err)
			}
			return nil
		})
	}
	return nil
}

func pollTopics(ctx context.Context, client *kgo.Client, take func(message)) error {
	for {
		fetches := client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			return fmt.Errorf("consume %s: %w", e.Topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			m := message{destination: r.Topic, key: string(r.Key), partition: r.Partition, offset: r.Offset}
			for _, h := range r.Headers {
				switch h.Key {
				case idHeader:
					m.id = string(h.Value)
				case typeHeader:
					m.kind = string(h.Value)
				}
			}
			take(m)
		})
	}
}

// given describes the servers of Options.Brokers.
func given(opts Options) string { return "your server, " + strings.Join(opts.Brokers, ", ") }
