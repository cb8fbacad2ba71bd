package kafka

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// staleMetadata makes the given brokers return the present metadata of a topic from now on. It returns a counter of
// those responses.
func (l *lab) staleMetadata(topic string, nodes ...int32) *atomic.Int64 {
	l.Helper()
	now, err := (&kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: &topic}}}).RequestWith(l.Context(), l.reader())
	if err != nil {
		l.Fatal(err)
	}
	stale := make(map[int32]bool)
	for _, n := range nodes {
		stale[n] = true
	}
	var asked atomic.Int64
	l.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		l.fake.KeepControl()
		if !stale[l.fake.CurrentNode()] {
			return nil, nil, false
		}
		asked.Add(1)
		answer := *now
		answer.SetVersion(req.GetVersion())
		return &answer, nil, true
	})
	return &asked
}

// atBroker makes the client send its metadata requests to the given broker, until the client chooses another one.
func (l *lab) atBroker(c *client, node int) {
	l.Helper()
	for range len(l.addrs) {
		c.control.inUse <- struct{}{}
		at := c.control.link.addr
		<-c.control.inUse
		if at == l.addrs[node] {
			return
		}
		c.control.askAnother(l.Context(), nil)
	}
	l.Fatalf("metadata requests do not go to %s", l.addrs[node])
}

// TestStaleBrokersDoNotHoldAPartition: some brokers never learn of a new leader. The client then asks another
// broker, and keeps the newer response: later responses of stale brokers do not restore the old leader.
func TestStaleBrokersDoNotHoldAPartition(t *testing.T) {
	for name, version := range map[string]string{"with hints": "3.7", "without hints": "3.6"} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 4, func(l *lab) {
				l.moveLeader(1)
				r := l.rig(Config{})
				r.send(recordFor("t", 0, "x"))
				r.AwaitAcked(1)
				l.atBroker(r.client, 0)
				stale := l.staleMetadata("t", 0, 3)
				l.moveLeader(2)
				// The old leader does not name the new one.
				old := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Nodes: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1})
				began := time.Now()
				r.send(recordFor("t", 0, "y"))
				r.producer.Flush()
				r.AwaitAcked(2)
				if took := bubble.Since(began); took > time.Second || stale.Load() == 0 {
					l.Errorf("sent after %s, stale brokers were asked %d times", took, stale.Load())
				}

				before := old.Hits()
				for _, node := range []int{3, 0, 1, 2} {
					l.atBroker(r.client, node)
					bubble.Sleep(refreshEvery + time.Second)
					r.send(recordFor("t", 0, "z"))
					r.producer.Flush()
					r.AwaitAcked(int(r.seq))
				}
				if n := old.Hits() - before; n != 0 {
					l.Errorf("the old leader was asked %d times", n)
				}
				r.drain()
			}, kfake.SeedTopics(1, "t"), oldBroker(version))
		})
	}
}

// TestStaleBrokerDoesNotHoldThePositions: the position reader stops using a broker that returns an old leader.
func TestStaleBrokerDoesNotHoldThePositions(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		move := func(node int32) {
			if err := l.fake.MoveTopicPartition("positions", 0, node); err != nil {
				l.Fatal(err)
			}
		}
		move(1)
		s := l.positions(l.net.DialContext, sinktest.NewJournal())
		post(l, s, firstKey, []byte("1"))
		wantValue(l, s, "1")
		l.atBroker(s.client, 0)
		stale := l.staleMetadata("positions", 0)
		move(2)
		began := time.Now()
		wantValue(l, s, "1")
		if took := bubble.Since(began); took > time.Second || stale.Load() == 0 {
			l.Errorf("read after %s, the stale broker was asked %d times", took, stale.Load())
		}
	}, kfake.SeedTopics(1, "positions"))
}

// TestNewTopicStartsItsEpochsAnew: a topic is re-created. Its leader epochs are lower than those of the old topic.
// The client accepts the new leader because the topic id differs.
func TestNewTopicStartsItsEpochsAnew(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		for node := range int32(3) {
			l.moveLeader(2 - node)
		}
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "x"))
		r.AwaitAcked(1)
		admin := l.admin()
		if _, err := admin.DeleteTopic(l.Context(), "t"); err != nil {
			l.Fatal(err)
		}
		if _, err := admin.CreateTopic(l.Context(), 1, -1, nil, "t"); err != nil {
			l.Fatal(err)
		}
		for l.fake.LeaderFor("t", 0) == 0 {
			l.moveLeader(1)
		}
		r.send(recordFor("t", 0, "y"))
		r.drain()
		if got := values(l.readRecords("t", 1), 0); len(got) != 1 || got[0] != "y" {
			l.Errorf("records: %q", got)
		}
	}, kfake.SeedTopics(1, "t"))
}
