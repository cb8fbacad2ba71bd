package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

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

// TestLateRequestOfAnOldEpochIsRejected: a request of a connection that was given up reaches the broker after
// its records were sent again under the next epoch. It must not get into the log: a reader
// would see old values of a key after new ones.
func TestLateRequestOfAnOldEpochIsRejected(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		var held atomic.Bool
		var late []func()
		j := sinktest.NewJournal()
		c, err := open(l.Context(), Config{Brokers: l.addrs}, j.Logger(), func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := l.net.DialContext(ctx, network, addr)
			return &delayedConn{conn, &held, &late}, err
		})
		if err != nil {
			l.Fatal(err)
		}
		r := startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "old 0"))
		r.AwaitAcked(1)
		held.Store(true)
		r.send(recordFor("t", 0, "old 1"))
		r.producer.Flush()
		synctest.Wait()
		r.Stop(errors.New("session lost"))
		if e, ok := errors.AsType[*sink.UndeliveredError](r.Wait()); !ok || e.Sent != 1 || len(late) != 1 {
			l.Fatalf("Run: %v; %d late requests", r.Wait(), len(late))
		}
		held.Store(false)
		r = startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "old 1"))
		r.send(recordFor("t", 0, "new"))
		r.drain()
		late[0]()
		synctest.Wait()
		r = startRig(l, c, j, sink.WriterConfig{})
		r.send(recordFor("t", 0, "end"))
		r.drain()
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

// TestNewProducerIDWhenEpochsRunOut: then another producer id is taken.
func TestNewProducerIDWhenEpochsRunOut(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		j := sinktest.NewJournal()
		c := l.client(Config{}, j.Logger())
		c.identities.last.epoch = math.MaxInt16 - 1
		for session := range 4 {
			if n := producerIDs(c); session < 2 && n != 1 {
				l.Errorf("session %d has producer id %d", session, n)
			}
			r := startRig(l, c, j, sink.WriterConfig{})
			r.send(recordFor("t", 0, "x"))
			r.drain()
		}
		if n := producerIDs(c); n != 2 {
			l.Errorf("%d producer ids taken", n)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestNewIdentityWhenABrokerLosesTheSequence: the epoch is enough where the broker takes it, else another id is
// taken; and nothing is sent until everything on the wire is answered.
func TestNewIdentityWhenABrokerLosesTheSequence(t *testing.T) {
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
				r.AwaitAcked(3)
				l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: tc.code, Count: tc.hits})
				for i := range 3000 {
					r.send(recordFor("t", int32(i%3), fmt.Sprint(1+i/3)))
				}
				r.drain()
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

// TestDeniedProducerIDIsRetried: a right that is revoked between two sessions is waited
// for, and named as the reason.
func TestDeniedProducerIDIsRetried(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "x"))
		r.AwaitAcked(1)
		refusal := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerEpoch})
		r.send(recordFor("t", 0, "y"))
		r.producer.Flush()
		time.Sleep(time.Minute)
		if s := r.client.Stat(); s.StalledSince.IsZero() || s.InFlightRecords != 1 {
			l.Errorf("Stat: %+v", s)
		}
		refusal.Remove()
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// TestBrokerAcceptsAWrappedSequence: after 2³¹-1 comes 0, and the broker agrees.
func TestBrokerAcceptsAWrappedSequence(t *testing.T) {
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	p := r.producer
	p.mu.Lock()
	introduced := p.addTopic(topic)
	p.mu.Unlock()
	r.Await("the topic", func() bool {
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
		r.AwaitAcked(2 * (i + 1))
	}
	r.drain()
	if s := r.client.Stat(); s.Retries != 0 || s.DuplicatesPossible != 0 {
		t.Errorf("%d retries, %d renewals", s.Retries, s.DuplicatesPossible)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 20 || got[19] != "19" {
		t.Errorf("log holds %q", got)
	}
}

// TestNewIdentityWaitsForRequestsInFlight: while one broker leaves a request unanswered, another's loss
// of memory is not repaired: batches of two identities must not be on the wire together.
func TestNewIdentityWaitsForRequestsInFlight(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		for p := range int32(2) {
			if err := l.fake.MoveTopicPartition("t", p, p); err != nil {
				l.Fatal(err)
			}
		}
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.send(recordFor("t", 1, "0"))
		r.AwaitAcked(2)
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
		began := time.Now()
		r.send(recordFor("t", 0, "never answered"))
		r.producer.Flush()
		synctest.Wait()
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.OutOfOrderSequenceNumber})
		r.send(recordFor("t", 1, "forgotten"))
		r.AwaitAcked(3)
		if took := time.Since(began); took < readTimeout {
			l.Errorf("a record was acknowledged after %s, while a request was unanswered", took)
		}
		r.drain()
	}, kfake.SeedTopics(2, "t"))
}
