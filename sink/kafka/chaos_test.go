package kafka

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

var (
	chaosFor  = flag.Duration("chaos", 0, "how long each chaos test sends; 0: 5s in a full run, otherwise until there were some faults")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of the chaos tests; 0 draws one")
)

const chaosTopic, chaosPartitions = "chaos", 6

// A nemesis injects a random fault into a cluster every 5 to 45 ms. It removes a fault that no request has hit, so
// that faults do not accumulate while the producer waits.
type nemesis struct {
	cluster *kfake.Cluster
	rng     *rand.Rand
	codes   []*kerr.Error
	fault   *kfake.FaultHandle
}

// transientCodes are the error codes after which the broker still knows the producer's sequence numbers. With two
// of them, the broker has already appended the batch.
var transientCodes = []*kerr.Error{
	kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.KafkaStorageError,
	kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend,
	kerr.NetworkException, kerr.ThrottlingQuotaExceeded,
}

// producerLostCodes are the error codes after which the broker no longer knows them.
var producerLostCodes = []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch}

// run injects faults until ctx ends.
func (n *nemesis) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.strike()
		select {
		case <-time.After(time.Duration(5+n.rng.IntN(40)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if n.fault != nil {
		n.fault.Remove()
	}
}

func (n *nemesis) strike() {
	if n.fault != nil {
		n.fault.Remove()
	}
	partition := n.rng.Int32N(chaosPartitions)
	switch n.rng.IntN(3) {
	case 0:
		n.fault = n.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: chaosTopic, Partitions: []int32{partition},
			Err: n.codes[n.rng.IntN(len(n.codes))], Count: 1 + n.rng.IntN(3),
		})
	case 1:
		lapses := time.Now().Add(25 * time.Millisecond)
		n.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if time.Now().After(lapses) {
				n.cluster.DropControl()
				return nil, nil, false
			}
			return nil, errors.New("dropped"), true
		})
	case 2:
		_ = n.cluster.MoveTopicPartition(chaosTopic, partition, n.rng.Int32N(3))
	}
}

func TestOrderUnderChaos(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		connections int
		codes       []*kerr.Error
		duplicates  bool
	}{
		{"one connection", 1, transientCodes, false},
		{"three connections", 3, transientCodes, false},
		{"forgetful brokers", 1, slices.Concat(transientCodes, producerLostCodes), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			testChaos(t, tc.connections, tc.codes, tc.duplicates)
		})
	}
}

func testChaos(t *testing.T, connections int, codes []*kerr.Error, duplicates bool) {
	t.Helper()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	k := kafkatest.Fake(t, kfake.SeedTopics(chaosPartitions, chaosTopic))
	r := newRig(t, Config{Brokers: k.Addrs, ConnectionsPerBroker: connections, WindowRecords: 5000})

	lasts := *chaosFor
	if lasts == 0 && need.Full() {
		lasts = 5 * time.Second
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enemy := &nemesis{cluster: k.Control, rng: rand.New(rand.NewPCG(seed, 0)), codes: codes}
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		enemy.run(ctx)
	}()
	var sent [chaosPartitions]int
	const enough = 10 // faults
	end := time.Now().Add(lasts)
	for i := 0; i%1000 > 0 || time.Now().Before(end) || r.client.Stat().Retries < enough; i++ {
		p := int32(i*7) % chaosPartitions
		r.send(recordFor(chaosTopic, p, fmt.Sprint(sent[p])))
		sent[p]++
	}
	cancel()
	<-quiet
	r.drain()

	total := int(r.seq)
	stat := r.client.Stat()
	seen := checkChaosLog(t, k.ReadAll(t, chaosTopic), sent[:], duplicates)
	t.Logf("%d records, %d batches resent, %d new identities, %d producer ids, %d duplicates",
		total, stat.Retries, stat.DuplicatesPossible, producerIDs(r.client), seen-total)
}

// checkChaosLog checks that every partition holds the values 0..sent-1 in order, ignoring duplicates if they are
// allowed. It returns the number of records.
func checkChaosLog(t *testing.T, log []*kgo.Record, sent []int, duplicates bool) int {
	t.Helper()
	next := make([]int, len(sent))
	for _, rec := range log {
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil {
			t.Fatal(err)
		}
		p := rec.Partition
		switch {
		case n == next[p]:
			next[p]++
		case n > next[p]:
			t.Fatalf("partition %d: %d at offset %d, before %d", p, n, rec.Offset, next[p])
		case !duplicates:
			t.Fatalf("partition %d: %d at offset %d for the second time", p, n, rec.Offset)
		}
	}
	for p := range sent {
		if next[p] != sent[p] {
			t.Errorf("partition %d: %d of %d records are in the log", p, next[p], sent[p])
		}
	}
	return len(log)
}

// TestBrokerCrashLosesNothing: a broker is killed, stopped, and frozen for longer than the request timeout. Every
// record is stored once and in order.
func TestBrokerCrashLosesNothing(t *testing.T) {
	t.Parallel()
	k := kafkatest.Start(t, kafkatest.Config{})
	topic := k.Topic(t, 4, nil)
	j := sinktest.NewJournal()
	c := openClient(t, Config{Brokers: k.Addrs}, j.Logger())
	c.connector.readTimeout = 3 * time.Second
	r := startRig(t, c, j, sink.WriterConfig{})
	sent := make([]int, 4)
	send := func(n int) {
		t.Helper()
		for range n {
			p := int32(r.seq % 4)
			r.send(recordFor(topic, p, fmt.Sprint(sent[p])))
			sent[p]++
		}
	}
	for _, trouble := range []struct {
		name        string
		begin, heal func() error
	}{
		{"killed", func() error { return k.Kill(t.Context()) }, func() error { return k.Restart(t.Context()) }},
		{"stopped", func() error { return k.Shutdown(t.Context()) }, func() error { return k.Restart(t.Context()) }},
		{"frozen", k.Pause, func() error { <-time.After(c.connector.readTimeout + time.Second); return k.Resume() }},
		{"killed again", func() error { return k.Kill(t.Context()) }, func() error { return k.Restart(t.Context()) }},
	} {
		send(50_000)
		r.Await("room in the window for what is sent meanwhile", func() bool { return r.Acked() > int(r.seq)-30_000 })
		if err := trouble.begin(); err != nil {
			t.Fatal(err)
		}
		send(20_000)
		if err := trouble.heal(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		n := r.Acked()
		r.Await("the first acknowledgement", func() bool { return r.Acked() > n })
		t.Logf("%s: back at %s, first acknowledgement at %s", trouble.name, back, time.Now())
	}
	send(1000)
	r.drain()
	checkChaosLog(t, k.ReadAll(t, topic), sent, false)
	if s := r.client.Stat(); s.DuplicatesPossible != 0 {
		t.Errorf("%d renewals", s.DuplicatesPossible)
	}
}

// TestClusterOutageLosesNothing: the whole cluster stops and restarts with its data, several times. Every record is
// stored once and in order.
func TestClusterOutageLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(ports ...int) *kfake.Cluster {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SeedTopics(4, "t"), kfake.Ports(ports...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := start(0)
	addrs := c.ListenAddrs()
	k := &kafkatest.Cluster{Addrs: addrs}
	var refused atomic.Int64
	r := newRig(t, Config{Brokers: addrs, WindowRecords: 2000, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			refused.Add(1)
		}
		return conn, err
	}})
	sent := make([]int, 4)
	send := func(n int) {
		for range n {
			p := int32(r.seq % 4)
			r.send(recordFor("t", p, fmt.Sprint(sent[p])))
			sent[p]++
		}
	}
	for range 3 {
		send(5000)
		r.Await("room in the window for what is sent meanwhile", func() bool { return r.Acked() > int(r.seq)-1000 })
		c.Close()
		before := refused.Load()
		send(1000)
		r.producer.Flush()
		r.Await("attempts to connect", func() bool { return refused.Load() > before+1 })
		c = start(portOf(t, addrs[0]))
		n := r.Acked()
		r.Await("the first acknowledgement", func() bool { return r.Acked() > n })
	}
	r.drain()
	checkChaosLog(t, k.ReadAll(t, "t"), sent, false)
	c.Close()
}

// TestFrozenBrokerIsLogged: a real broker is stopped with SIGSTOP. It accepts connections, but does not respond.
// The client logs that. After SIGCONT, the broker has every record once.
func TestFrozenBrokerIsLogged(t *testing.T) {
	t.Parallel()
	k := kafkatest.Start(t, kafkatest.Config{})
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "before"))
	r.AwaitAcked(1)
	if err := k.Pause(); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		r.send(recordFor(topic, 0, fmt.Sprint(i)))
	}
	r.producer.Flush()
	r.awaitLog("accepts connections but does not respond")
	if s := r.client.Stat(); s.StalledSince.IsZero() || !strings.Contains(s.StallReason, "frozen") {
		t.Errorf("Stat: %+v", s)
	}
	if err := k.Resume(); err != nil {
		t.Fatal(err)
	}
	r.awaitLog("broker responds again")
	r.drain()
	if got := len(k.ReadN(t, 1001, topic)); got != 1001 { // ReadN waits: for other clients, the topic may not have a leader yet
		t.Errorf("%d records in the log", got)
	}
	t.Log(r.Journal)
}
