package broker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// kafkaBroker is Kafka. Its topics last as long as a workbench, because thousands of partitions take long to create.
type kafkaBroker struct {
	brokers []string
	access  []kgo.Opt // TLS and SASL
	codec   string
}

func newKafka(cfg kafka.Config, codec string) (kafkaBroker, error) {
	var opts []kgo.Opt
	if cfg.TLS != nil {
		encryption, err := cfg.TLS()
		if err != nil {
			return kafkaBroker{}, err
		}
		opts = append(opts, kgo.DialTLSConfig(encryption))
	}
	if cfg.SASL != nil {
		opts = append(opts, kgo.SASL(mechanism(cfg.SASL)))
	}
	return kafkaBroker{cfg.Brokers, opts, codec}, nil
}

func mechanism(s *kafka.SASL) sasl.Mechanism {
	secret := func(ctx context.Context) (string, error) {
		if s.Secret == nil {
			return s.Password, nil
		}
		return s.Secret(ctx)
	}
	forScram := func(ctx context.Context) (scram.Auth, error) {
		password, err := secret(ctx)
		return scram.Auth{User: s.User, Pass: password}, err
	}
	switch s.Mechanism {
	case "OAUTHBEARER":
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := secret(ctx)
			return oauth.Auth{Token: token, Extensions: s.Extensions}, err
		})
	case "PLAIN":
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := secret(ctx)
			return plain.Auth{User: s.User, Pass: password}, err
		})
	case "SCRAM-SHA-256":
		return scram.Sha256(forScram)
	}
	return scram.Sha512(forScram)
}

func kafkaError(doing string, err error) error {
	return failed(doing, err,
		"Check sink.kafka.brokers, and that its user may create, write, read and delete topics named "+measure.TopicPrefix+"*.")
}

// newClient returns a client that has reached a broker.
func (b kafkaBroker) newClient(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{kgo.SeedBrokers(b.brokers...), kgo.ClientID(measure.ClientID)}
	client, err := kgo.NewClient(append(append(base, b.access...), opts...)...)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, measure.ContactTimeout)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		client.Close()
		return nil, kafkaError("reach a broker", err)
	}
	return client, nil
}

// List implements measure.Broker.
func (b kafkaBroker) List(ctx context.Context) ([]string, error) {
	client, err := b.newClient(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, kafkaError("look for leftovers", err)
	}
	return slices.DeleteFunc(topics.Names(), func(n string) bool { return !strings.HasPrefix(n, measure.TopicPrefix) }), nil
}

// DropCommand implements measure.Broker: a command of Kafka's scripts. Its --topic is a regular expression.
func (kafkaBroker) DropCommand(prefix string) string {
	return fmt.Sprintf(`kafka-topics.sh --bootstrap-server … --delete --topic '%s\..*'`, name(prefix))
}

// Library implements Broker.
func (kafkaBroker) Library() string { return "franz-go" }

// Open implements measure.Broker.
func (b kafkaBroker) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	client, err := b.newClient(ctx)
	if err != nil {
		return nil, err
	}
	t := &kafkaTopics{broker: b, admin: kadm.NewClient(client), prefix: l.Prefix, names: names(l.Prefix+route, l.Topics)}
	if err := t.create(ctx, l); err != nil {
		client.Close()
		return nil, err
	}
	return t, nil
}

type kafkaTopics struct {
	broker kafkaBroker
	admin  *kadm.Client
	prefix string
	names  []string
}

// maxNewPartitions is the maximum number of partitions per request. KRaft's controller rejects more than 10,000,
// and while it creates thousands, it misses heartbeats of its brokers.
const maxNewPartitions = 1000

// create creates the topics, with the brokers' default retention, which is longer than a bench, and starts their partitions.
func (t *kafkaTopics) create(ctx context.Context, l measure.Layout) error {
	for some := range t.parts(l) {
		answers, err := t.admin.CreateTopics(ctx, l.Partitions, l.ReplicationFactor, nil, some...)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			return kafkaError("make topics", err)
		}
	}
	if err := t.await(ctx); err != nil {
		return err
	}
	return t.startPartitions(ctx, l)
}

// parts returns the names in parts of at most maxNewPartitions partitions.
func (t *kafkaTopics) parts(l measure.Layout) iter.Seq[[]string] {
	return slices.Chunk(t.names, max(1, maxNewPartitions/int(l.Partitions)))
}

// await returns when every partition has a leader. The controller responds before the brokers know their
// partitions; with thousands of partitions, seconds before.
func (t *kafkaTopics) await(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := t.ends(ctx)
		if err == nil {
			return nil
		}
		if !kerr.IsRetriable(err) {
			return kafkaError("wait for the topics", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the topics: %w, and then %w", err, context.Cause(ctx))
		}
	}
}

// indexInterval is Kafka's default of index.interval.bytes.
const indexInterval = 4 << 10

// startPartitions writes two records to each partition. A broker creates the files of a partition with the first record, and
// writes to its indexes with the first one after indexInterval bytes. That is slow with any client, so the contender that comes
// first must not pay for it. No Stream has these records.
func (t *kafkaTopics) startPartitions(ctx context.Context, l measure.Layout) error {
	client, err := t.broker.newClient(ctx,
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	for some := range t.parts(l) {
		for _, size := range []int{indexInterval + 1, 1} {
			err := client.ProduceSync(ctx, oneEach(some, l.Partitions, make([]byte, size))...).FirstErr()
			if ctx.Err() != nil {
				return fmt.Errorf("write to the new topics: %w", context.Cause(ctx))
			}
			if err != nil {
				return kafkaError("write to the new topics", err)
			}
		}
	}
	return nil
}

// oneEach returns a record for each partition of topics.
func oneEach(topics []string, partitions int32, value []byte) []*kgo.Record {
	var records []*kgo.Record
	for _, topic := range topics {
		for id := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: id, Value: value})
		}
	}
	return records
}

func (t *kafkaTopics) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	offsets, err := t.admin.ListEndOffsets(ctx, t.names...)
	if err == nil {
		err = offsets.Error()
	}
	return offsets, err
}

// Delete implements measure.Destinations.
func (t *kafkaTopics) Delete(ctx context.Context) error {
	all, err := t.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(all.Names(), func(topic string) bool { return !strings.HasPrefix(topic, t.prefix) })
	if len(ours) == 0 {
		return nil
	}
	answers, err := t.admin.DeleteTopics(ctx, ours...)
	if err != nil {
		return err
	}
	return answers.Error()
}

// Close implements measure.Destinations.
func (t *kafkaTopics) Close() { t.admin.Close() }

// Fetches are large, but limited, so that a consumer that lags does not use much memory.
const (
	fetchBytes          = 16 << 20
	fetchPartitionBytes = 4 << 20
	pollRecords         = 20_000
)

// Observe implements measure.Destinations. It returns when the first fetch was sent to a broker.
func (t *kafkaTopics) Observe(ctx context.Context) (measure.Stream, error) {
	offsets, err := t.ends(ctx)
	if err != nil {
		return nil, kafkaError("find the ends of the topics", err)
	}
	fetching, batches := &firstFetch{begun: make(chan struct{})}, &batchCounter{}
	client, err := t.broker.newClient(ctx,
		kgo.ConsumePartitions(offsets.KOffsets()), kgo.WithHooks(fetching, batches), kgo.WithPools(&recordPool{}), kgo.DisableFetchCRCValidation(),
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords()) // End needs the offsets of control records
	if err != nil {
		return nil, err
	}
	select {
	case <-fetching.begun:
	case <-ctx.Done():
		client.Close()
		return nil, context.Cause(ctx)
	}
	s := &kafkaStream{topics: t, client: client, next: make(map[partition]int64), batches: batches}
	offsets.Each(func(at kadm.ListedOffset) { s.next[partition{at.Topic, at.Partition}] = at.Offset })
	return s, nil
}

// A kafkaStream consumes all committed records, with large fetches and reused memory.
type kafkaStream struct {
	topics  *kafkaTopics
	client  *kgo.Client
	next    map[partition]int64 // offset after the last record
	batches *batchCounter
}

var _ measure.BatchCounter = (*kafkaStream)(nil)

type partition struct {
	topic string
	id    int32
}

// Names implements measure.Stream.
func (s *kafkaStream) Names() []string { return s.topics.names }

// Settings implements measure.Stream.
func (s *kafkaStream) Settings() map[string]any {
	return map[string]any{"outbox.topic": s.topics.prefix + route, "position_topic": s.topics.prefix + "positions"}
}

// Poll implements measure.Stream.
func (s *kafkaStream) Poll(ctx context.Context, take measure.Take) error {
	fetches := s.client.PollRecords(ctx, pollRecords)
	now := time.Now()
	if ctx.Err() != nil && len(fetches.Errors()) > 0 {
		return nil
	}
	for _, e := range fetches.Errors() {
		return kafkaError("consume "+e.Topic, e.Err)
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if n := len(p.Records); n > 0 {
			s.next[partition{p.Topic, p.Partition}] = p.Records[n-1].Offset + 1
		}
		for _, r := range p.Records {
			if !r.Attrs.IsControl() {
				take(now, delivery.Coordinates{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}, r.Key, r.Value)
			}
			r.Recycle()
		}
	})
	return nil
}

// End implements measure.Stream.
func (s *kafkaStream) End(ctx context.Context) (func() bool, error) {
	ends, err := s.topics.ends(ctx)
	if err != nil {
		return nil, kafkaError("find the ends of the topics", err)
	}
	return func() bool {
		behind := false
		ends.Each(func(end kadm.ListedOffset) {
			behind = behind || s.next[partition{end.Topic, end.Partition}] < end.Offset
		})
		return !behind
	}, nil
}

// Batches implements measure.BatchCounter.
func (s *kafkaStream) Batches() int { return int(s.batches.n.Load()) }

// Close implements measure.Stream.
func (s *kafkaStream) Close(context.Context) error {
	s.client.Close()
	return nil
}

// firstFetch is a hook that detects the first fetch request.
type firstFetch struct {
	once  sync.Once
	begun chan struct{}
}

var _ kgo.HookBrokerWrite = (*firstFetch)(nil)

// OnBrokerWrite is called with every request.
func (f *firstFetch) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Fetch) && err == nil {
		f.once.Do(func() { close(f.begun) })
	}
}

// A batchCounter is a hook that counts the batches of all fetches.
type batchCounter struct{ n atomic.Int64 }

var _ kgo.HookFetchBatchRead = (*batchCounter)(nil)

// OnFetchBatchRead is called with every batch.
func (c *batchCounter) OnFetchBatchRead(kgo.BrokerMetadata, string, int32, kgo.FetchBatchMetrics) {
	c.n.Add(1)
}

// A recordPool reuses the memory of records.
type recordPool struct{ records sync.Pool }

var _ kgo.PoolRecords = (*recordPool)(nil)

// GetRecords returns memory for n records.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:n]
	}
	return make([]kgo.Record, n)
}

// PutRecords returns the memory of records.
func (p *recordPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

// Producer implements Broker.
func (b kafkaBroker) Producer(ctx context.Context) (measure.Producer, error) {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[b.codec]
	if !ok {
		codec = kgo.NoCompression()
	}
	client, err := b.newClient(ctx, kgo.ProducerBatchCompression(codec))
	if err != nil {
		return nil, err
	}
	return &kafkaProducer{client: client}, nil
}

// A kafkaProducer is an idempotent producer with acks=all, which is franz-go's default.
type kafkaProducer struct {
	client *kgo.Client
	outcome
}

// Publish implements measure.Producer.
func (p *kafkaProducer) Publish(ctx context.Context, messages []measure.Message) error {
	for i := range messages {
		m := &messages[i]
		p.client.Produce(ctx, &kgo.Record{
			Topic: m.Topic, Key: []byte(m.Key), Value: m.Payload,
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(m.ID)}, {Key: "eventType", Value: []byte(m.Type)}},
		}, func(_ *kgo.Record, err error) { p.note(err) })
	}
	return p.err()
}

// Wait implements measure.Producer.
func (p *kafkaProducer) Wait(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return err
	}
	return p.err()
}
