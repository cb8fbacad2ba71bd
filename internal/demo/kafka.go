package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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
		listen, err := listenBehindProxy(r, b)
		if err != nil {
			return nil, err
		}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(listen), kfake.BrokerConfigs(map[string]string{
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
	opts := []kgo.Opt{kgo.SeedBrokers(b.addrs...), kgo.ClientID(clientID), kgo.Dialer(b.dial)}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	r.later(closing(client.Close))
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		return nil, unreachable(b, err)
	}
	admin := kadm.NewClient(client)
	if err := createTopics(ctx, r, admin, b.destinations()); err != nil {
		return nil, err
	}
	b.positions = r.names.object + ".positions"
	r.laterAt(len(r.opts.Brokers) > 0 && r.opts.Chaos, func(ctx context.Context) error { return deletePositions(ctx, admin, b.positions) })
	consumer, err := kgo.NewClient(append(opts, kgo.KeepControlRecords(), // they count for the end of a topic
		kgo.ConsumeTopics(b.destinations()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	r.later(closing(consumer.Close))
	b.sink = kafka.Config{Brokers: b.addrs, ClientID: relayClientID}
	reader := &topicReader{client: consumer, admin: admin, topics: b.destinations(), next: make(map[topicPartition]int64)}
	b.consume, b.readAll = reader.poll, reader.readAll
	return b, nil
}

// listenBehindProxy returns how the broker listens. With Options.Chaos, it tells clients the address of a proxy.
func listenBehindProxy(r *rig, b *broker) (listen func(network, address string) (net.Listener, error), err error) {
	if !r.opts.Chaos {
		return net.Listen, nil
	}
	b.proxy, err = r.newProxy("Kafka", "")
	return b.proxy.Listen, err
}

// dial connects to a broker, past the proxy: only connections of relays are cut.
func (b *broker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if b.proxy != nil && address == b.proxy.Addr() {
		address = b.proxy.Target()
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// deletePositions deletes the position topic, if a relay has created it.
func deletePositions(ctx context.Context, admin *kadm.Client, topic string) error {
	if _, err := admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
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

type topicPartition struct {
	topic     string
	partition int32
}

// A topicReader reads topics from their starts, as read_uncommitted reads them.
type topicReader struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string

	mu   sync.Mutex
	next map[topicPartition]int64 // offsets
}

// poll calls take for each record until ctx ends.
func (t *topicReader) poll(ctx context.Context, take func(message)) error {
	for {
		fetches := t.client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			return fmt.Errorf("consume %s: %w", e.Topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				take(messageOf(r))
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.next[topicPartition{r.Topic, r.Partition}] = r.Offset + 1
		})
	}
}

func messageOf(r *kgo.Record) message {
	m := message{destination: r.Topic, key: string(r.Key), partition: r.Partition, offset: r.Offset}
	for _, h := range r.Headers {
		switch h.Key {
		case idHeader:
			m.id = string(h.Value)
		case typeHeader:
			m.kind = string(h.Value)
		}
	}
	return m
}

// readAll waits until poll has read up to the present ends of the topics.
func (t *topicReader) readAll(ctx context.Context) error {
	ends, err := t.admin.ListEndOffsets(ctx, t.topics...)
	if err != nil {
		return err
	}
	if err := ends.Error(); err != nil {
		return err
	}
	return until(ctx, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		read := true
		ends.Each(func(o kadm.ListedOffset) { read = read && t.next[topicPartition{o.Topic, o.Partition}] >= o.Offset })
		return read
	})
}

// given describes the servers of Options.Brokers.
func given(opts Options) string { return "your server, " + strings.Join(opts.Brokers, ", ") }
