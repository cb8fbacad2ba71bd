package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestSessions: a client serves one producer after the other under one producer id; only the
// epoch grows.
func TestSessions(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := k.Topic(t, 3, nil)
		j := new(journal)
		c := openClient(t, Config{Brokers: k.Addrs}, j.logger())
		var want []string
		for session := range 5 {
			r := startRig(t, c, j, sink.WriterConfig{})
			for i := range 300 {
				value := fmt.Sprint(session, "/", i)
				r.send(recordFor(topic, int32(i%3), value))
				if i%3 == 0 {
					want = append(want, value)
				}
			}
			r.mustDrain()
		}
		if got := values(k.ReadAll(t, topic), 0); !slices.Equal(got, want) {
			t.Errorf("%d records in partition 0, want %d in order", len(got), len(want))
		}
		s := c.Stat()
		// On a real broker a new topic may have no leader yet.
		if producerIDs(c) != 1 || strings.HasSuffix(t.Name(), "/kfake") && s.Retries != 0 || s.Topics[topic].Records != 1500 || s.InFlightRecords != 0 {
			t.Errorf("Stat: %+v", s)
		}
	})
}

// A delayedConn loses sight of what is written to it while held is set: it arrives at release,
// after the writer has closed the connection.
type delayedConn struct {
	net.Conn
	held *atomic.Bool
	late *[]func()
}

func (c *delayedConn) Write(b []byte) (int, error) {
	if !c.held.Load() {
		return c.Conn.Write(b)
	}
	b = slices.Clone(b)
	*c.late = append(*c.late, func() { _, _ = c.Conn.Write(b) })
	return len(b), nil
}

func (c *delayedConn) Read(b []byte) (int, error) {
	if c.held.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *delayedConn) Close() error {
	if c.held.Load() {
		return c.SetReadDeadline(time.Now()) // the other side does not see it
	}
	return c.Conn.Close()
}

// TestStragglerIsFenced: a request of a connection that was given up reaches the broker after
// its records were sent again under the next epoch. It must not get into the log: a reader
// would see old values of a key after new ones.
func TestStragglerIsFenced(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		var held atomic.Bool
		var late []func()
		j := new(journal)
		c, err := open(l.Context(), Config{Brokers: l.addrs}, j.logger(), func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := l.net.DialContext(ctx, network, addr)
			return &delayedConn{conn, &held, &late}, err
		})
		if err != nil {
			l.Fatal(err)
		}
		r := startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "old 0"))
		r.waitAcked(1)
		held.Store(true)
		r.send(recordFor("t", 0, "old 1"))
		r.producer.Flush()
		synctest.Wait()
		r.cancel(errors.New("session lost"))
		if e, ok := errors.AsType[*sink.UndeliveredError](r.waitRun()); !ok || e.Sent != 1 || len(late) != 1 {
			l.Fatalf("Run: %v; %d late requests", r.waitRun(), len(late))
		}
		held.Store(false)
		r = startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "old 1"))
		r.send(recordFor("t", 0, "new"))
		r.mustDrain()
		late[0]()
		synctest.Wait()
		r = startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "end"))
		r.mustDrain()
		_ = c.Close()
		var got []string
		for _, rec := range l.readRecords("t", 4) {
			got = append(got, string(rec.Value))
		}
		if !slices.Equal(got, []string{"old 0", "old 1", "new", "end"}) {
			l.Errorf("log holds %q", got)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestEpochsRunOut: then another producer id is taken.
func TestEpochsRunOut(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		j := new(journal)
		c := l.client(Config{}, j.logger())
		c.identities.last.epoch = math.MaxInt16 - 1
		for range 4 {
			r := startRig(l, c, j, sink.WriterConfig{})
			r.send(recordFor("t", 0, "x"))
			r.mustDrain()
		}
		if n := producerIDs(c); n != 2 {
			l.Errorf("%d producer ids taken", n)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestIdentityIsLost: the epoch is enough where the broker takes it, else another id is
// taken; and nothing is sent until everything on the wire is answered.
func TestIdentityIsLost(t *testing.T) {
	for _, tc := range []struct {
		code *kerr.Error
		hits int
		ids  int
	}{
		{kerr.OutOfOrderSequenceNumber, 1, 1},
		{kerr.UnknownProducerID, 1, 1},
		{kerr.UnknownProducerID, 3, 0}, // depends on whether other partitions proved the epoch in between
		{kerr.InvalidProducerEpoch, 1, 2},
	} {
		t.Run(fmt.Sprint(tc.code.Message, "×", tc.hits), func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				r := l.rig(Config{})
				for p := range 3 {
					r.send(recordFor("t", int32(p), "0"))
				}
				r.waitAcked(3)
				l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: tc.code, Count: tc.hits})
				for i := range 3000 {
					r.send(recordFor("t", int32(i%3), fmt.Sprint(1+i/3)))
				}
				r.mustDrain()
				s := r.client.Stat()
				ids := producerIDs(r.client)
				if tc.ids != 0 && ids != tc.ids || s.DuplicatesPossible != int64(tc.hits) {
					l.Errorf("%d producer ids, %d renewals; want %d, %d", ids, s.DuplicatesPossible, tc.ids, tc.hits)
				}
				next := make([]int, 3)
				for _, rec := range l.readRecords("t", 3003) {
					if want := fmt.Sprint(next[rec.Partition]); string(rec.Value) != want {
						l.Fatalf("partition %d: %s, want %s", rec.Partition, rec.Value, want)
					}
					next[rec.Partition]++
				}
			}, kfake.SeedTopics(3, "t"))
		})
	}
}

// TestProducerIDRefusedWhileRunning: a right that is revoked between two sessions is waited
// for, and named as the reason.
func TestProducerIDRefusedWhileRunning(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "x"))
		r.waitAcked(1)
		refusal := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerEpoch})
		r.send(recordFor("t", 0, "y"))
		r.producer.Flush()
		time.Sleep(time.Minute)
		if s := r.client.Stat(); s.StalledSince.IsZero() || s.InFlightRecords != 1 {
			l.Errorf("Stat: %+v", s)
		}
		refusal.Remove()
		r.mustDrain()
	}, kfake.SeedTopics(1, "t"))
}

// TestSequencesWrapOnTheWire: after 2³¹-1 comes 0, and the broker agrees.
func TestSequencesWrapOnTheWire(t *testing.T) {
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	p := r.producer
	p.mu.Lock()
	introduced := p.addTopic(topic)
	p.mu.Unlock()
	r.wait("the topic", func() bool {
		signal(r.changed)
		p.mu.Lock()
		defer p.mu.Unlock()
		if introduced.parts == nil {
			return false
		}
		// A broker takes any first sequence from a producer it has not heard of.
		introduced.parts[0].nextSequence = math.MaxInt32 - 4
		return true
	})
	for i := range 10 {
		r.send(recordFor(topic, 0, fmt.Sprint(2*i)))
		r.send(recordFor(topic, 0, fmt.Sprint(2*i+1)))
		r.waitAcked(2 * (i + 1))
	}
	r.mustDrain()
	if s := r.client.Stat(); s.Retries != 0 || s.DuplicatesPossible != 0 {
		t.Errorf("%d retries, %d renewals", s.Retries, s.DuplicatesPossible)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 20 || got[19] != "19" {
		t.Errorf("log holds %q", got)
	}
}

// TestOutage: the whole cluster goes away and comes back with what it had, again and again:
// nothing is lost, nothing twice.
func TestOutage(t *testing.T) {
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
	r := newRig(t, Config{Brokers: addrs, WindowRecords: 2000})
	sent := make([]int, 4)
	sendFor := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			p := int32(r.seq % 4)
			r.send(recordFor("t", p, fmt.Sprint(sent[p])))
			sent[p]++
		}
	}
	for range 5 {
		sendFor(100 * time.Millisecond)
		r.wait("room in the window for what is sent meanwhile", func() bool { return len(r.acked) > int(r.seq)-1000 })
		c.Close()
		for range 1000 {
			p := int32(r.seq % 4)
			r.send(recordFor("t", p, fmt.Sprint(sent[p])))
			sent[p]++
		}
		time.Sleep(200 * time.Millisecond)
		c = start(portOf(t, addrs[0]))
		back := time.Now()
		n := len(r.acked)
		r.wait("the first acknowledgement", func() bool { return len(r.acked) > n })
		t.Logf("first acknowledgement %s after the return", time.Since(back).Round(time.Millisecond))
	}
	r.mustDrain()
	got := k.ReadAll(t, "t")
	next := make([]int, 4)
	for _, rec := range got {
		if want := fmt.Sprint(next[rec.Partition]); string(rec.Value) != want {
			t.Fatalf("partition %d offset %d: %s, want %s", rec.Partition, rec.Offset, rec.Value, want)
		}
		next[rec.Partition]++
	}
	if !slices.Equal(next, sent) {
		t.Errorf("log holds %d, sent %d", next, sent)
	}
	c.Close()
}

// TestIdentityWaitsForAnswers: while one broker leaves a request unanswered, another's loss
// of memory is not repaired: batches of two identities must not be on the wire together.
func TestIdentityWaitsForAnswers(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		for p := range int32(2) {
			if err := l.fake.MoveTopicPartition("t", p, p); err != nil {
				l.Fatal(err)
			}
		}
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.send(recordFor("t", 1, "0"))
		r.waitAcked(2)
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
		began := time.Now()
		r.send(recordFor("t", 0, "never answered"))
		r.producer.Flush()
		synctest.Wait()
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.OutOfOrderSequenceNumber})
		r.send(recordFor("t", 1, "forgotten"))
		r.waitAcked(3)
		if took := time.Since(began); took < readTimeout {
			l.Errorf("a record was acknowledged after %s, while a request was unanswered", took)
		}
		r.mustDrain()
	}, kfake.SeedTopics(2, "t"))
}
