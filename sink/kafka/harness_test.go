package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	testwait "github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) {
	// sarama's first Fetch starts this goroutine, and it never ends. Start it here: a lab waits for every goroutine
	// that starts in it.
	metrics.NewMeter().Stop()
	leak.VerifyTestMain(kafkatest.Wrap(m))
}

// A rig is a client with a producer whose Run is active.
type rig struct {
	*sinktest.Session
	tb       testing.TB
	ctx      context.Context
	client   *client
	producer *producer
	seq      uint64 // the Seq of the last record passed to Send
}

func openClient(tb testing.TB, cfg Config, log *slog.Logger) *client {
	tb.Helper()
	c, err := open(sinktest.Context(tb), cfg, log, cfg.dial())
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func newRig(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	return newRigWith(tb, cfg, sink.WriterConfig{})
}

func newRigWith(tb testing.TB, cfg Config, writer sink.WriterConfig) *rig {
	tb.Helper()
	j := sinktest.NewJournal()
	return startRig(tb, openClient(tb, cfg, j.Logger()), j, writer)
}

// startRig starts a producer of a client that logs to j.
func startRig(tb testing.TB, c *client, j *sinktest.Journal, cfg sink.WriterConfig) *rig {
	tb.Helper()
	s := sinktest.StartSession(tb, c, j, cfg)
	return &rig{Session: s, tb: tb, ctx: sinktest.Context(tb), client: c, producer: s.Writer.(*producer)}
}

// producerIDs returns how many producer ids c has requested.
func producerIDs(c *client) int {
	c.identities.mu.Lock()
	defer c.identities.mu.Unlock()
	return c.identities.idsRequested
}

// send sends one record with the next Seq.
func (r *rig) send(rec sink.Record) uint64 {
	r.tb.Helper()
	seq, err := r.trySend(rec)
	if err != nil {
		r.tb.Fatalf("Send: %v\n%+v\n%s", err, r.client.Stat(), r.Journal)
	}
	return seq
}

func (r *rig) trySend(rec sink.Record) (uint64, error) {
	r.seq++
	rec.Seq = r.seq
	return rec.Seq, r.producer.Send(r.ctx, &rec)
}

func (r *rig) sendKeyed(topic, key, value string) {
	r.tb.Helper()
	r.send(sink.Record{Topic: topic, Partition: sink.AnyPartition, Key: []byte(key), Value: []byte(value)})
}

// recordFor returns a record for a fixed partition.
func recordFor(topic string, partition int32, value string) sink.Record {
	return sink.Record{Topic: topic, Partition: partition, Key: []byte("k"), Value: []byte(value)}
}

// awaitLog blocks until the journal contains text.
func (r *rig) awaitLog(text string) {
	r.tb.Helper()
	r.Await("the log line "+text, func() bool { return strings.Contains(r.Journal.String(), text) })
}

// closeSend calls CloseSend and returns what Run returns.
func (r *rig) closeSend() error {
	r.tb.Helper()
	r.producer.CloseSend()
	return r.Wait()
}

// drain calls CloseSend and waits until every record is acknowledged.
func (r *rig) drain() {
	r.tb.Helper()
	r.Drain(int(r.seq))
}

// values returns the values of the records of one partition, in offset order.
func values(records []*kgo.Record, partition int32) []string {
	var vs []string
	for _, r := range records {
		if r.Partition == partition {
			vs = append(vs, string(r.Value))
		}
	}
	return vs
}

// alterLimit returns a change of the size of the largest batch that a topic accepts.
func alterLimit(limit string) []kadm.AlterConfig {
	return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}
}

// answerNaming returns a response that names records by their index in the batch (KIP-467).
func answerNaming(indices []int32) *sentBatch {
	block := new(sarama.ProduceResponseBlock)
	for _, i := range indices {
		block.RecordErrors = append(block.RecordErrors, sarama.ProduceResponseRecordError{BatchIndex: i})
	}
	return &sentBatch{block: block}
}

func portOf(tb testing.TB, addr string) int {
	tb.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// A lab is a kfake cluster with fake time (a synctest bubble) and an in-memory network.
type lab struct {
	*testing.T
	net     *kfake.VirtualNetwork
	cluster *kafkatest.FakeCluster
	fake    *kfake.Cluster // of cluster
	addrs   []string
}

// inLab runs f in a lab with the given number of brokers. In a lab, waiting takes no real time.
func inLab(t *testing.T, brokers int, f func(l *lab), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, net: new(kfake.VirtualNetwork)}
		var ports []int
		for i := range brokers {
			ports = append(ports, 9092+i)
			l.addrs = append(l.addrs, net.JoinHostPort("localhost", strconv.Itoa(9092+i)))
		}
		opts = append(opts, kfake.Ports(ports...), kfake.ListenFn(l.net.Listen))
		l.cluster = kafkatest.Fake(t, opts...)
		l.fake = l.cluster.Control
		f(l)
	})
}

// client opens a client in the lab.
func (l *lab) client(cfg Config, log *slog.Logger) *client {
	l.Helper()
	if cfg.Brokers == nil {
		cfg.Brokers = l.addrs
	}
	c, err := open(l.Context(), cfg, log, l.net.DialContext)
	if err != nil {
		l.Fatalf("open: %v", err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return c
}

// rig starts a producer in the lab.
func (l *lab) rig(cfg Config) *rig {
	l.Helper()
	return l.rigWith(cfg, sink.WriterConfig{})
}

func (l *lab) rigWith(cfg Config, writer sink.WriterConfig) *rig {
	l.Helper()
	j := sinktest.NewJournal()
	return startRig(l, l.client(cfg, j.Logger()), j, writer)
}

// admin returns an admin client in the lab.
func (l *lab) admin() *kadm.Client {
	l.Helper()
	return kadm.NewClient(l.reader())
}

func (l *lab) reader(opts ...kgo.Opt) *kgo.Client {
	l.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(l.addrs...), kgo.Dialer(l.net.DialContext))...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(cl.Close)
	return cl
}

// readRecords returns the first n records of a topic, in any order across partitions.
func (l *lab) readRecords(topic string, n int) []*kgo.Record {
	l.Helper()
	cl := l.reader(kgo.ConsumeTopics(topic))
	var all []*kgo.Record
	for len(all) < n {
		fetches := cl.PollFetches(l.Context())
		if err := fetches.Err(); err != nil {
			l.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// oldBroker limits kfake to the protocol versions of the given version of Kafka.
func oldBroker(version string) kfake.Opt { return kfake.MaxVersions(kversion.FromString(version)) }

// hangBroker makes broker 0 ignore requests of the given kinds until the returned function is called. ApiVersions
// must not be one of them: sarama waits for its response on a mutex, which stops the clock of the lab.
func (l *lab) hangBroker(keys ...kmsg.Key) (release func()) {
	var over atomic.Bool
	for _, key := range keys {
		l.fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			l.fake.KeepControl()
			return nil, nil, !over.Load() && l.fake.CurrentNode() == 0
		})
	}
	return func() { over.Store(true) }
}

// moveLeader makes node the leader of the only partition of topic t.
func (l *lab) moveLeader(node int32) {
	l.Helper()
	if err := l.fake.MoveTopicPartition("t", 0, node); err != nil {
		l.Fatal(err)
	}
}

// A faultyNetwork is a network in which a test can make dialing fail.
type faultyNetwork struct {
	net *kfake.VirtualNetwork
	err atomic.Pointer[net.OpError]
}

func (s *faultyNetwork) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := s.err.Load(); err != nil {
		return nil, err
	}
	return s.net.DialContext(ctx, network, addr)
}

// rigOver starts a producer on a faultyNetwork.
func (l *lab) rigOver() (*rig, *faultyNetwork) {
	l.Helper()
	j, s := sinktest.NewJournal(), &faultyNetwork{net: l.net}
	c, err := open(l.Context(), Config{Brokers: l.addrs}, j.Logger(), s.dial)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return startRig(l, c, j, sink.WriterConfig{}), s
}

// throttle makes the cluster accept the next batch and return a throttle time.
func throttle(c *kfake.Cluster, d time.Duration) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := kafkatest.Accept(req.(*kmsg.ProduceRequest))
		res.ThrottleMillis = int32(d.Milliseconds())
		return res, nil, true
	})
}

// rejectPoison makes the cluster reject every batch that contains "poison" with err.
func rejectPoison(c *kfake.Cluster, err *kerr.Error) {
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1, Partitions: []int32{0},
		When: func(req kmsg.Request) bool {
			for _, topic := range req.(*kmsg.ProduceRequest).Topics {
				for _, p := range topic.Partitions {
					if p.Partition == 0 && strings.Contains(string(p.Records), "poison") {
						return true
					}
				}
			}
			return false
		},
	})
}

// holdProduce holds back produce requests until the returned function is called.
func holdProduce(c *kafkatest.FakeCluster) (release func()) {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Patience())
	c.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Control.KeepControl()
		if ctx.Err() == nil {
			c.SleepControl(func() { <-ctx.Done() })
		}
		return nil, nil, false
	})
	return cancel
}

// wantRecordError waits until Run ends with a sink.RecordError for record seq. The producer must report it once.
func wantRecordError(tb testing.TB, r *rig, seq uint64) *sink.RecordError {
	tb.Helper()
	err := r.Wait()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != seq {
		tb.Fatalf("Run: %v, want a sink.RecordError for record %d", err, seq)
	}
	if _, err := r.trySend(recordFor("t", 1, "late")); !errors.Is(err, e) {
		tb.Errorf("Send: %v, want %v", err, e)
	}
	if failed := r.Failed(); len(failed) != 1 || !errors.Is(failed[seq], e) {
		tb.Errorf("failures reported: %v", failed)
	}
	return e
}
