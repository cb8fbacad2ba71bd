package kafkatest_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// produce sends n records, numbered from first, and waits for their acks.
func produce(t *testing.T, client *kgo.Client, topic string, first, n int) {
	t.Helper()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte{byte(i)}, Value: []byte(strconv.Itoa(first + i))})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func testReading(t *testing.T, k *kafkatest.Cluster) {
	t.Helper()
	topic := k.Topic(t, 3, map[string]string{"retention.ms": "3600000"})
	if got := k.ReadAll(t, topic); len(got) != 0 {
		t.Errorf("ReadAll of a new topic: %d records", len(got))
	}
	var collected atomic.Int64
	c := k.Collect(t, func(*kgo.Record) { collected.Add(1) }, topic)
	client := k.Client(t)
	produce(t, client, topic, 0, 500)
	if got := k.ReadN(t, 400, topic); len(got) < 400 {
		t.Errorf("ReadN(400): %d records", len(got))
	}
	produce(t, client, topic, 500, 500)
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if collected.Load() != 1000 || c.Count() != 1000 {
		t.Errorf("collected %d, Count %d, want 1000", collected.Load(), c.Count())
	}
	if got := k.ReadAll(t, topic); len(got) != 1000 {
		t.Errorf("ReadAll: %d records, want 1000", len(got))
	}
}

func TestFake(t *testing.T) { testReading(t, kafkatest.Fake(t).Cluster) }

func TestBroker(t *testing.T) { testReading(t, kafkatest.Broker(t)) }

func TestProxiedFake(t *testing.T) {
	p := faultproxy.Start(t, "")
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(p.Listen))
	testCutting(t, k.Cluster, p)
}

func TestProxiedBroker(t *testing.T) {
	p, other := faultproxy.Start(t, ""), faultproxy.Start(t, "")
	k := kafkatest.Start(t, kafkatest.Config{Proxies: []*faultproxy.Proxy{p, other}})
	testCutting(t, k.Cluster, p)
	p.Refuse()
	testCutting(t, k.Cluster, other)
	other.Refuse()
	k.ReadAll(t, k.Topic(t, 1, nil)) // these calls do not connect through a proxy
}

// testCutting produces records through a proxy that closes the connections during a request.
func testCutting(t *testing.T, k *kafkatest.Cluster, p *faultproxy.Proxy) {
	t.Helper()
	topic := k.Topic(t, 1, nil)
	client := (&kafkatest.Cluster{Addrs: []string{p.Addr()}}).Client(t)
	produce(t, client, topic, 0, 10)
	for _, d := range []stream.Direction{stream.Upstream, stream.Downstream} {
		cut := p.CutAfter(d, 20)
		produce(t, client, topic, 10, 10)
		<-cut
	}
	if got := k.ReadAll(t, topic); len(got) != 30 { // no duplicates: the producer is idempotent
		t.Errorf("%d records, want 30", len(got))
	}
}

// Each listener accepts the credentials it is configured for and rejects others.
func TestListeners(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Config{Users: map[string]string{"alice": "open \"sesame\""}, TLS: true})
	auth := scram.Auth{User: "alice", Pass: "open \"sesame\""}
	wrong := scram.Auth{User: "alice", Pass: "shut"}
	for _, c := range []struct {
		name string
		addr string
		opts []kgo.Opt
		ok   bool
	}{
		{"PLAIN", k.SASLAddr(), []kgo.Opt{kgo.SASL(plain.Auth{User: auth.User, Pass: auth.Pass}.AsMechanism())}, true},
		{"SCRAM-SHA-256", k.SASLAddr(), []kgo.Opt{kgo.SASL(auth.AsSha256Mechanism())}, true},
		{"SCRAM-SHA-512", k.SASLAddr(), []kgo.Opt{kgo.SASL(auth.AsSha512Mechanism())}, true},
		{"wrong password", k.SASLAddr(), []kgo.Opt{kgo.SASL(wrong.AsSha512Mechanism())}, false},
		{"SCRAM over TLS", k.TLSAddr(), []kgo.Opt{kgo.SASL(auth.AsSha512Mechanism()), kgo.DialTLSConfig(k.TLSConfig())}, true},
		{"unknown authority", k.TLSAddr(), []kgo.Opt{kgo.SASL(auth.AsSha512Mechanism()), kgo.DialTLSConfig(&tls.Config{})}, false},
	} {
		client := (&kafkatest.Cluster{Addrs: []string{c.addr}}).Client(t, append(c.opts, kgo.RequestRetries(0))...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := client.Ping(ctx); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
	}
}

func TestTLSWithoutSASL(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Config{TLS: true})
	client := (&kafkatest.Cluster{Addrs: []string{k.TLSAddr()}}).Client(t, kgo.DialTLSConfig(k.TLSConfig()))
	produce(t, client, k.Topic(t, 1, nil), 0, 10)
}

// The JVM accepts ScriptOptions together with the options of this package.
func TestScriptOptions(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Config{JVM: kafkatest.ScriptOptions(), HeapMB: 256})
	produce(t, k.Client(t), k.Topic(t, 1, nil), 0, 10)
}

func TestServerComesBack(t *testing.T) {
	began := time.Now()
	k := kafkatest.Start(t, kafkatest.Config{})
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	topic := k.Topic(t, 2, nil)
	client := k.Client(t)
	c := k.Collect(t, func(*kgo.Record) {}, topic)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, stop := range []func(context.Context) error{k.Shutdown, k.Kill, func(context.Context) error { return nil }} {
		produce(t, client, topic, 100*i, 100)
		began := time.Now()
		if err := stop(ctx); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		if err := k.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("stop %d: %v, start %v", i, stopped.Sub(began).Round(time.Millisecond), time.Since(stopped).Round(time.Millisecond))
	}
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := k.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := c.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if c.Count() != 300 {
		t.Errorf("collected %d records, want 300", c.Count())
	}
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := k.Shutdown(ctx); err != nil || k.Running() {
		t.Errorf("Shutdown of a paused broker: %v, running %t", err, k.Running())
	}
}

// TestSleepControl: a cluster ends although a control function sleeps, or has just been woken, when its test ends.
func TestSleepControl(t *testing.T) {
	for i := range 50 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.NumBrokers(1))
			asleep, wakeup := make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(wakeup) }) // just before the cluster is closed
			k.Control.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
				close(asleep)
				k.SleepControl(func() { <-wakeup })
				return nil, nil, true
			})
			client, ctx := k.Client(t), t.Context()
			var asked sync.WaitGroup
			t.Cleanup(asked.Wait)
			asked.Go(func() { _ = client.Ping(ctx) })
			<-asleep
		})
	}
	stacks := func() any {
		b := make([]byte, 1<<20)
		return string(b[:runtime.Stack(b, true)])
	}
	wait.For(t, "the end of the clusters", func() bool { return !strings.Contains(stacks().(string), "kfake.(*Cluster).run(") }, stacks)
}
