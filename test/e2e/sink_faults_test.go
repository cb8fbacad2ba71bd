package e2e

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// prompt is how late the end of a fault that heals by itself may be noticed: the longest
// back-off and a little. A machine that is busy with other tests may now and then take
// longer, so the quickest recovery of several is held against it.
const prompt = 1500 * time.Millisecond

// A broker that is frozen takes what the kernel has room for and answers nothing. The
// backlog stays in the log of the server, which can be stopped meanwhile, and when the broker
// wakes up nothing comes twice.
//
// OUTBOX_TEST_FREEZE is for how many seconds; above 20 requests time out meanwhile.
func TestBrokerFrozen(t *testing.T) {
	t.Parallel()
	r, srv, broker := rig.NewOwnBroker(t)
	process := r.Run(t, "--set", "source.lease=1h") // if nothing responds to the WAL sender, the stop takes that long
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)

	wake := time.After(time.Duration(rig.EnvInt(t, "OUTBOX_TEST_FREEZE", 5)) * time.Second)
	rig.Must(t, broker.Pause())
	r.Load.Run(t.Context(), t, 50_000)
	rig.Must(t, srv.Shutdown(t.Context()))
	rig.Must(t, srv.Restart(t.Context()))
	<-wake
	process.Flat(t)
	rig.Must(t, broker.Resume())

	r.Arrived(t)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// While no broker can be reached the server's log grows. How much it may still grow is
// warned of; when the broker comes back in time, everything arrives and the warning ends.
func TestBrokerDownUntilTheSlotIsAtRisk(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it fills the WAL")
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_slot_wal_keep_size": "64MB", "wal_sender_timeout": "3s"}})
	proxy := faultproxy.Start(t, "")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen))
	w := watch(t, srv, fake.Cluster, `CREATE TABLE outbox `+outboxColumns)
	w.cfg.Positions = position.Place{Topic: position.DefaultTopic}
	w.run(t).delivers(t, "outbox")

	proxy.Refuse()
	w.exec(t, `INSERT INTO outbox SELECT n, 'TOPIC', 'k', 'T', '{}' FROM generate_series(2, 1000) n`)
	wait.For(t, "the warning", func() bool {
		w.exec(t, `SELECT pg_switch_wal(); SELECT txid_current()`)
		<-time.After(2 * w.cfg.WatchInterval)
		return strings.Contains(w.log.String(), "more WAL, Postgres may invalidate the slot")
	})
	for _, want := range []string{"the broker does not acknowledge its rows", `fix="Check sink.kafka.brokers`, "max_slot_wal_keep_size is 64 MB"} {
		w.logged(t, want)
	}

	proxy.Accept()
	for i, rec := range fake.ReadN(t, 1000, w.topic) {
		if id := rig.Header(rec, "id"); id != strconv.Itoa(i+1) {
			t.Fatalf("record %d is of row %s", i+1, id)
		}
	}
	wait.For(t, "the end of the warning", func() bool {
		w.exec(t, `SELECT txid_current(); CHECKPOINT`)
		<-time.After(2 * w.cfg.WatchInterval)
		return strings.Contains(w.log.String(), "below the limit again")
	})
	if got := len(fake.ReadAll(t, w.topic)); got != 1000 {
		t.Errorf("%d records, want each row once", got)
	}
}

// If too few replicas are in sync, the broker rejects records. The relay retries, and delivers as soon as enough
// replicas are in sync.
func TestNotEnoughReplicas(t *testing.T) {
	t.Parallel()
	leader := kafkatest.Start(t, kafkatest.Config{Properties: map[string]string{
		"default.replication.factor": "2", "min.insync.replicas": "2",
	}})
	follower := kafkatest.Start(t, kafkatest.Config{Joins: leader})
	r := rig.NewOn(t, rig.Database(t), leader.Cluster)
	process := r.Run(t)
	var took []time.Duration
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			rig.Must(t, follower.Shutdown(t.Context()))
			r.Silent(t)
			refused := r.Collector.Count()
			process.Logged(t, "min.insync.replicas") // in words, or with the code of a rejection
			<-time.After(time.Second)
			if n := r.Collector.Count() - refused; n != 0 {
				t.Errorf("%d records were taken by one broker, two are demanded", n)
			}
			rig.Must(t, follower.Restart(t.Context()))
			took = append(took, r.Recover(t))
		}
	})
	if slices.Min(took) > prompt {
		t.Errorf("recovered in %v, want one within %v", took, prompt)
	}
	process.Terminate(t)
	r.Settle(t, 0)
}

// stored is how many records a topic of kfake has.
func stored(topic string, fake *kafkatest.FakeCluster) (n int64) {
	for _, p := range fake.Control.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}

// Leaders move many times a second, and are not to be found for a while.
func TestLeadersMove(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it measures how soon records are stored again")
	r, fake := rig.NewFake(t)
	r.Collector.Stop() // its client loses its way; what is in the log is asked of kfake, and read at the end
	stores := func() time.Duration {
		began, n := time.Now(), stored(r.Topic, fake)
		wait.For(t, "records to be stored", func() bool { return stored(r.Topic, fake) > n })
		return time.Since(began) //nolint:forbidigo // at night only
	}
	process := r.Run(t)
	var took []time.Duration
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			for range 33 { // about a second
				fake.Control.ShufflePartitionLeaders()
				<-time.After(30 * time.Millisecond)
			}
			stores()
			gone := fake.Control.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: r.Topic, Err: kerr.LeaderNotAvailable, Count: -1,
			})
			wait.For(t, "the topic to fall silent", func() bool {
				n := stored(r.Topic, fake)
				<-time.After(300 * time.Millisecond)
				return stored(r.Topic, fake) == n
			})
			gone.Remove()
			took = append(took, stores())
		}
	})
	t.Logf("recovered in %v", took)
	if slices.Min(took) > prompt {
		t.Errorf("recovered in %v, want one within %v", took, prompt)
	}
	r.Confirmed(t)
	process.Terminate(t)
	r.SettleOnce(t, r.Kafka.ReadAll(t, r.Topic), delivery.Config{})
}

// A topic is deleted and, under load, created anew. What the old one had acknowledged went
// with it; everything else is in the new one, in order, also if there are fewer partitions
// than there were.
func TestTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for metadata to expire")
	for name, partitions := range map[string]int32{"as many partitions": 6, "more": 9, "fewer": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			process := r.Run(t)
			r.Load.Run(t.Context(), t, 1000)
			r.Arrived(t)
			r.Collector.Stop()
			old := r.Kafka.ReadAll(t, r.Topic) // nothing else will have been in the old topic
			admin := r.Kafka.Admin(t)
			_, err := admin.DeleteTopic(t.Context(), r.Topic)
			rig.Must(t, err)
			wait.For(t, "the broker to know that the topic is deleted", func() bool {
				topics, err := admin.ListTopics(t.Context(), r.Topic)
				rig.Must(t, err)
				return errors.Is(topics[r.Topic].Err, kerr.UnknownTopicOrPartition)
			})
			rig.UnderLoad(t, r, func() {
				process.Logged(t, "topic rejects records")
				moreEvents(t, r)
				_, err := admin.CreateTopic(t.Context(), partitions, 1, nil, r.Topic)
				rig.Must(t, err)
				process.Logged(t, "topic was re-created")
				moreEvents(t, r)
			})
			r.Confirmed(t)
			process.Terminate(t)
			settleMoved(t, r, old...)
		})
	}
}

// A topic gets more partitions under load. Keys move, which is warned of, but no record of a
// key is on its way to two partitions at a time.
func TestTopicGrows(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until the relay sees the new partitions")
	r, fake := rig.NewFake(t)
	r.Collector.Stop()
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		moreEvents(t, r)
		_, err := fake.Admin(t).CreatePartitions(t.Context(), 3, r.Topic)
		rig.Must(t, err)
		// It is noticed at the next look at the metadata, which any trouble brings about.
		fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotLeaderForPartition})
		process.Logged(t, "topic has more partitions, keys map to other partitions")
		moreEvents(t, r)
	})
	r.Confirmed(t)
	process.Terminate(t)
	grown := false
	for _, rec := range settleMoved(t, r) {
		grown = grown || rec.Partition >= 6
	}
	if !grown {
		t.Error("nothing is in the new partitions")
	}
}

// moreEvents waits until some more events are committed.
func moreEvents(t *testing.T, r *rig.Rig) {
	t.Helper()
	n := r.Load.Total() + 500
	wait.For(t, "more events to be committed", func() bool { return r.Load.Total() >= n })
}

// settleMoved is settle, without repetitions, for a topic whose number of partitions has
// changed, which returns its records. Readers of two partitions see no order between them:
// all of a key that is in one partition has to be before all that is in another.
func settleMoved(t *testing.T, r *rig.Rig, earlier ...*kgo.Record) []*kgo.Record {
	t.Helper()
	type lane struct {
		key       string
		partition int32
	}
	lanes := map[lane][]*kgo.Record{}
	all := r.Kafka.ReadAll(t, r.Topic)
	for _, rec := range slices.Concat(earlier, all) {
		l := lane{string(rec.Key), rec.Partition}
		lanes[l] = append(lanes[l], rec)
	}
	runs := make([][]*kgo.Record, 0, len(lanes))
	for _, run := range lanes {
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b []*kgo.Record) int { return rig.NumberOf(a[0].Value) - rig.NumberOf(b[0].Value) })
	r.SettleOnce(t, slices.Concat(runs...), delivery.Config{AnyPartition: true})
	return all
}
