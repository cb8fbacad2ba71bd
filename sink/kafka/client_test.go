package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// TestOpenAwaitsAStartingBroker: a broker that has just started returns COORDINATOR_LOAD_IN_PROGRESS for a while.
// Open retries, and logs a warning only if that lasts.
func TestOpenAwaitsAStartingBroker(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
		j := sinktest.NewJournal()
		opened := make(chan *client)
		go func() { opened <- l.client(Config{}, j.Logger()) }()
		bubble.Sleep(warnAfter - time.Second)
		if s := j.String(); strings.Count(s, "level=INFO msg=\"kafka is not ready yet\"") != 1 || strings.Count(s, "\n") != 1 {
			l.Errorf("log: %s", s)
		}
		bubble.Sleep(time.Minute)
		if s := j.String(); strings.Count(s, "level=WARN msg=\"kafka not reached yet\"") != 1 || strings.Count(s, "\n") != 2 {
			l.Errorf("log: %s", s)
		}
		fault.Remove()
		<-opened
	})
}

// TestAnswersAndReconnectsAreCounted: the producer reports the duration of each answered request. It counts each
// connection that replaces a broken one, but not the first connection to a broker.
func TestAnswersAndReconnectsAreCounted(t *testing.T) {
	var mu sync.Mutex
	var took []time.Duration
	var conns []net.Conn
	j := sinktest.NewJournal()
	r := startRig(t, openClient(t, Config{
		Brokers: kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")).Addrs,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			return conn, err
		},
	}, j.Logger()), j, sink.WriterConfig{Answered: func(d time.Duration, _ string) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, d)
	}})
	const rounds = 4
	for i := range rounds {
		r.send(recordFor("orders", 0, "value"))
		r.AwaitAcked(i + 1)
		if n := r.client.Stat().Reconnects; n != int64(i) {
			t.Errorf("%d reconnects after %d broken connections", n, i)
		}
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
	}
	if err := r.closeSend(); err != nil {
		t.Fatal(err)
	}
	if len(took) != rounds || min(took[0], took[1], took[2], took[3]) <= 0 {
		t.Errorf("answers after %s, want %d", took, rounds)
	}
}

// TestDeliveryNamesTheOffset: the producer reports the offset of each acknowledged batch. It also reports the
// request duration with the example that Delivered returns.
func TestDeliveryNamesTheOffset(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 2, nil)
	var mu sync.Mutex
	offsets := make(map[uint64]int64)
	var returned, examples []string
	r := newRigWith(t, Config{Brokers: k.Addrs}, sink.WriterConfig{
		Delivered: func(d sink.Delivery) string {
			mu.Lock()
			defer mu.Unlock()
			if d.Topic != topic || d.Partition != 1 || !slices.Contains(k.Addrs, d.Broker) {
				t.Errorf("%+v", d)
			}
			for i, seq := range d.Seqs {
				offsets[seq] = d.Offset + int64(i)
			}
			returned = append(returned, fmt.Sprint("trace of ", d.Seqs[0]))
			return returned[len(returned)-1]
		},
		Answered: func(_ time.Duration, example string) {
			mu.Lock()
			defer mu.Unlock()
			examples = append(examples, example)
		},
	})
	for i := range 3 {
		r.send(recordFor(topic, 1, "first"))
		r.send(recordFor(topic, 1, "second"))
		r.AwaitAcked(2 * (i + 1))
	}
	r.drain()
	if diff := cmp.Diff(map[uint64]int64{1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}, offsets); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(returned, examples); diff != "" {
		t.Errorf("examples (-returned +got):\n%s", diff)
	}
}

// TestInspectorDescribesBrokersAndTopics: the inspector describes brokers and topics. It creates no topic.
func TestInspectorDescribesBrokersAndTopics(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(2))
	topic := k.Topic(t, 3, map[string]string{"max.message.bytes": "5000"})
	i, err := newInspector(Config{Brokers: k.Addrs[:1]})
	if err != nil {
		t.Fatal(err)
	}
	defer i.close()
	ctx := sinktest.Context(t)
	if err := errors.Join(i.reach(ctx, k.Addrs[1]), i.mayWrite(ctx), i.mayCreate(ctx, "absent", TopicSpec{Partitions: 1})); err != nil {
		t.Error(err)
	}
	brokers, err := i.brokers(ctx)
	if diff := cmp.Diff([]listedBroker{{0, k.Addrs[0]}, {1, k.Addrs[1]}}, brokers, cmp.AllowUnexported(listedBroker{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	topics, err := i.topics(ctx, "absent", topic)
	if err != nil {
		t.Fatal(err)
	}
	if absent := topics[0]; !absent.missing || absent.name != "absent" || absent.err != nil || absent.settings != nil {
		t.Errorf("%+v", absent)
	}
	there := topics[1]
	if there.missing || there.name != topic || there.partitions != 3 || there.leaderless != 0 || there.replicas == 0 || there.inSync != there.replicas || there.settings["max.message.bytes"] != "5000" {
		t.Errorf("%+v", there)
	}
	if allowed, known := (&topicState{operations: 1<<4 | 1<<8}).allows(operationRead); allowed || !known {
		t.Error("Read is allowed without its bit")
	}
	if _, known := (&topicState{operations: -1 << 31}).allows(operationRead); known {
		t.Error("Read is known, but the broker has not returned the operations")
	}
	if err := i.mayCreate(ctx, "wide", TopicSpec{Partitions: 1, ReplicationFactor: 9}); err == nil || isRefusal(err) {
		t.Errorf("a topic of 9 replicas on 2 brokers may be created: %v", err)
	}
}

// TestOpenNamesEveryUnreachableAddress: Open retries until the context ends. Its error then names the cause for
// every address.
func TestOpenNamesEveryUnreachableAddress(t *testing.T) {
	t.Parallel()
	addrs := []string{unusedAddr(t), unusedAddr(t), "no-such-host.invalid:9092"}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var dials atomic.Int64
	cfg := Config{Brokers: addrs, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) > int64(len(addrs)) { // each of them was tried
			cancel(errors.New("startup timeout"))
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	j := sinktest.NewJournal()
	_, err := cfg.Open(ctx, j.Logger())
	if !errors.Is(err, sink.ErrUnreachable) {
		t.Fatalf("Open: %v", err)
	}
	for _, part := range append(addrs, "refused", "startup timeout") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if s := j.String(); strings.Count(s, "\n") != 1 {
		t.Errorf("log: %s", s)
	}
}

// A broker that accepts the connection and sends nothing until the context ends is one that does not respond: the client itself closes
// the connection then.
func TestOpenNamesASilentBroker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Read(make([]byte, 1)) // of the first request
		cancel(errors.New("startup timeout"))
		_, _ = io.Copy(io.Discard, conn)
	})
	_, err = (&Config{Brokers: []string{l.Addr().String()}}).Open(ctx, sinktest.NewJournal().Logger())
	_ = l.Close()
	accepting.Wait()
	if !errors.Is(err, sink.ErrUnreachable) || !strings.HasSuffix(err.Error(), "startup timeout (last cause: "+l.Addr().String()+": no response)") {
		t.Errorf("Open: %v", err)
	}
}

// An overdueContext ends shortly after its deadline, as every context does.
type overdueContext struct{ context.Context }

func (c overdueContext) Deadline() (time.Time, bool) {
	deadline, ok := c.Context.Deadline()
	return deadline.Add(-time.Millisecond), ok
}

// TestDeadlineIsNotTheLastCause: the deadline interrupts an attempt, and the dialer may notice the deadline before
// the context ends. The error still names the cause of an earlier attempt, not the deadline.
func TestDeadlineIsNotTheLastCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newClient(Config{Brokers: []string{"localhost:9092"}}.withDefaults(), sinktest.NewJournal().Logger(), nil)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ctx := overdueContext{limited}
		deadline, _ := ctx.Deadline()
		attempts := 0
		err = c.retryTransient(ctx, func() error {
			if attempts++; attempts == 1 {
				return errors.New("no route to host")
			}
			bubble.Sleep(time.Until(deadline))
			return os.ErrDeadlineExceeded
		})
		if attempts < 2 || !errors.Is(err, sink.ErrUnreachable) || !strings.Contains(err.Error(), "no route to host") || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %d attempts: %v", attempts, err)
		}
	})
}

// TestOpenRetriesUntilABrokerStarts: Open connects to a cluster that starts later than the client.
func TestOpenRetriesUntilABrokerStarts(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.Close()
		addrs := slices.Concat([]string{"localhost:1"}, l.addrs)
		time.AfterFunc(20*time.Second, func() {
			fake, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(l.net.Listen), kfake.SeedTopics(1, "t"))
			if err != nil {
				panic(err)
			}
			l.Cleanup(fake.Close)
		})
		began := time.Now()
		r := l.rig(Config{Brokers: addrs})
		if took := bubble.Since(began); took < 20*time.Second || took > 21*time.Second {
			l.Errorf("reached after %s", took)
		}
		r.send(recordFor("t", 0, "x"))
		r.drain()
	})
}

func TestValidateNamesTheField(t *testing.T) {
	ok := Config{Brokers: []string{"localhost:9092"}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for field, spoil := range map[string]func(*Config){
		"Brokers":              func(c *Config) { c.Brokers = nil },
		"Compression":          func(c *Config) { c.Compression = "rar" },
		"Partitioner":          func(c *Config) { c.Partitioner = "random" },
		"SASL.Mechanism":       func(c *Config) { c.SASL = &SASL{Mechanism: "GSSAPI", User: "u"} },
		"SASL.User":            func(c *Config) { c.SASL = &SASL{Mechanism: "PLAIN", Password: password} },
		"SASL.Password":        func(c *Config) { c.SASL = &SASL{Mechanism: "PLAIN", User: "u"} },
		"SASL.Secret":          func(c *Config) { c.SASL = &SASL{Mechanism: "OAUTHBEARER", Password: password} },
		"SASL.Extensions":      func(c *Config) { c.SASL = bearerLogin(password); c.SASL.Extensions = map[string]string{"auth": "x"} },
		"CreateTopics":         func(c *Config) { c.CreateTopics = &TopicSpec{Partitions: -2} },
		"WindowBytes":          func(c *Config) { c.WindowBytes = -1 },
		"WindowRecords":        func(c *Config) { c.WindowRecords = -1 },
		"MaxMessageBytes":      func(c *Config) { c.MaxMessageBytes = -1 },
		"ConnectionsPerBroker": func(c *Config) { c.ConnectionsPerBroker = -1 },
	} {
		cfg := ok
		spoil(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := cfg.Open(t.Context(), sinktest.NewJournal().Logger()); err == nil {
			t.Errorf("%s: Open accepts it", field)
		}
	}
}

// TestCheckDestinationsNamesMissingTopics: the error names the missing topics.
func TestCheckDestinationsNamesMissingTopics(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "there"))
	j := sinktest.NewJournal()
	c := openClient(t, Config{Brokers: k.Addrs}, j.Logger())
	if err := c.CheckDestinations(sinktest.Context(t), "there"); err != nil {
		t.Error(err)
	}
	err := c.CheckDestinations(sinktest.Context(t), "there", "missing", "also-missing")
	if !errors.Is(err, sink.ErrMissing) || !strings.HasSuffix(err.Error(), ": missing, also-missing") {
		t.Errorf("CheckDestinations: %v", err)
	}
	if advised, ok := errors.AsType[sink.Advised](err); !ok || !strings.Contains(advised.Advice(), "--create --topic missing ") {
		t.Errorf("no advice: %v", err)
	}
	c = openClient(t, Config{Brokers: k.Addrs, CreateTopics: new(TopicSpec)}, j.Logger())
	if err := c.CheckDestinations(sinktest.Context(t), "missing"); err != nil {
		t.Errorf("a topic that may be created: %v", err)
	}
}

// TestOldBrokersAreSpokenTo: the client uses the protocol versions that an old broker supports, also after a leader
// change.
func TestOldBrokersAreSpokenTo(t *testing.T) {
	versions := []string{"v0.11.0", "v2.4", "v4.1"}
	if need.Full() {
		versions = append(versions, "v1.0", "v2.1", "v2.8", "v3.3", "v3.9")
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.SeedTopics(2, "t"), oldBroker(version))
			r := newRig(t, Config{Brokers: k.Addrs})
			for i := range 1000 {
				if i%100 == 50 { // before Kafka 3.7 the response does not name the new leader
					r.AwaitAcked(i)
					if err := k.Control.MoveTopicPartition("t", int32(i%2), int32(i/100%3)); err != nil {
						t.Fatal(err)
					}
				}
				rec := recordFor("t", int32(i%2), fmt.Sprint(i))
				rec.Headers = []sink.Header{{Key: "h", Value: []byte("v")}}
				r.send(rec)
			}
			r.drain()
			if got := len(k.ReadAll(t, "t")); got != 1000 {
				t.Errorf("%d records in the log", got)
			}
		})
	}
}

// unusedAddr returns an address that nothing listens on.
func unusedAddr(t *testing.T) string {
	t.Helper()
	port, err := serverproc.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Close)
	return port.Addr()
}
