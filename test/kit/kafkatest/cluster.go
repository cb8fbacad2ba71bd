package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const cleanupTimeout = time.Minute

// A Cluster is a Kafka cluster that clients can connect to without TLS or SASL.
type Cluster struct {
	Addrs []string // host:port of the bootstrap brokers
}

// clientOpts returns the options of a franz-go client that refreshes its
// metadata often and retries while the cluster is down.
func (c *Cluster) clientOpts(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs...),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.UnknownTopicRetries(-1),
	}, more...)
}

// Client returns a franz-go client with opts in addition to the default options.
// It is closed when the test ends.
func (c *Cluster) Client(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	client, err := kgo.NewClient(c.clientOpts(opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return client
}

// Admin returns an admin client that is closed when the test ends.
func (c *Cluster) Admin(tb testing.TB) *kadm.Client {
	tb.Helper()
	return kadm.NewClient(c.Client(tb))
}

// UniqueName returns a topic name that no other test uses. Use it for a topic
// that the tested code creates itself, and delete the topic with DeleteTopics.
func UniqueName(tb testing.TB) string {
	tb.Helper()
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '-'
		}
	}, tb.Name())
	return safe[:min(len(safe), 200)] + "-" + strings.ToLower(rand.Text()[:8])
}

// Topic creates a topic with a unique name, the given number of partitions, the
// brokers' default replication factor and the configuration configs. It deletes
// the topic when the test ends.
func (c *Cluster) Topic(tb testing.TB, partitions int32, configs map[string]string) string {
	tb.Helper()
	name := UniqueName(tb)
	c.CreateTopic(tb, name, partitions, configs)
	return name
}

// CreateTopic is like Topic, with the given name.
func (c *Cluster) CreateTopic(tb testing.TB, name string, partitions int32, configs map[string]string) {
	tb.Helper()
	values := make(map[string]*string, len(configs))
	for k, v := range configs {
		values[k] = &v
	}
	admin := c.Admin(tb)
	if _, err := admin.CreateTopic(tb.Context(), partitions, -1, values, name); err != nil {
		tb.Fatalf("create topic %s: %v", name, err)
	}
	c.DeleteTopics(tb, name)
	awaitLeaders(tb, admin, name)
}

// awaitLeaders waits until the leader of every partition of a new topic serves
// requests. The controller of a real cluster responds before the brokers know
// which partitions they lead. Until then they reject records, and a test that
// counts rejected records would count these too.
func awaitLeaders(tb testing.TB, admin *kadm.Client, topic string) {
	tb.Helper()
	for {
		offsets, err := admin.ListStartOffsets(tb.Context(), topic)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-tb.Context().Done():
			tb.Fatalf("topic %s is not served: %v", topic, err)
		}
	}
}

// DeleteTopics deletes topics when the test ends. It ignores topics that do not
// exist then, and does nothing if it cannot connect to the cluster.
func (c *Cluster) DeleteTopics(tb testing.TB, topics ...string) {
	tb.Helper()
	tb.Cleanup(func() {
		client, err := kgo.NewClient(c.clientOpts(kgo.RetryTimeout(time.Second))...)
		if err != nil {
			tb.Errorf("delete topics: %v", err)
			return
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupTimeout)
		defer cancel()
		if client.Ping(ctx) != nil {
			return // the test has stopped the broker
		}
		deleted, err := kadm.NewClient(client).DeleteTopics(ctx, topics...)
		for _, d := range deleted.Sorted() {
			if !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
				err = errors.Join(err, d.Err)
			}
		}
		if err != nil {
			tb.Errorf("delete topics: %v", err)
		}
	})
}

// AwaitNoTopic waits until no name of a topic contains part: brokers learn of a deletion with a delay.
func (c *Cluster) AwaitNoTopic(tb testing.TB, part string) {
	tb.Helper()
	admin := c.Admin(tb)
	wait.For(tb, "no topic is named like "+part, func() bool {
		topics, err := admin.ListTopics(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		return !slices.ContainsFunc(topics.Names(), func(name string) bool { return strings.Contains(name, part) })
	})
}

// Accept returns the response of a broker that has stored all records of req. With kfake's
// ControlKey, a kfake can send it without storing the records.
func Accept(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition = p.Partition
			answer.Partitions = append(answer.Partitions, part)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp
}
