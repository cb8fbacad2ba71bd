package test

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

	"github.com/outbox-cdc/outbox-cdc/internal/cutproxy"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// fakeRig is a rig on a kfake of its own.
func fakeRig(t *testing.T, opts ...kfake.Opt) (*rig, *kafkatest.FakeCluster) {
	t.Helper()
	fake := kafkatest.Fake(t, opts...)
	return newRig(t, pgtest.Database(t), fake.Cluster), fake
}

// silent waits until nothing arrives any more, although events are committed.
func (r *rig) silent(t *testing.T) {
	t.Helper()
	waitFor(t, 30*time.Second, "the topic to fall silent", func() bool {
		records, committed := r.collector.Count(), r.load.total()
		time.Sleep(300 * time.Millisecond)
		return r.collector.Count() == records && r.load.total() > committed
	})
}

// recover demands that what waited for the end of a fault arrives, and returns how long
// after the call it did.
func (r *rig) recover(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	r.progress(t)
	took := time.Since(began)
	t.Logf("recovered in %v", took.Round(time.Millisecond))
	return took
}

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
	r, srv, broker := ownRig(t)
	process := r.run(t)
	r.load.run(t.Context(), t, 1000)
	r.arrived(t, 30*time.Second)

	wake := time.After(time.Duration(envInt(t, "OUTBOX_TEST_FREEZE", 5)) * time.Second)
	must(t, broker.Pause())
	r.load.run(t.Context(), t, 50_000)
	began := time.Now()
	must(t, srv.Shutdown(t.Context()))
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("a fast stop of the server took %v", took)
	}
	must(t, srv.Restart(t.Context()))
	<-wake
	process.flat(t)
	must(t, broker.Resume())

	began = time.Now()
	r.arrived(t, time.Minute)
	t.Logf("everything arrived %v after the broker went on", time.Since(began).Round(time.Millisecond))
	process.flat(t)
	process.terminate(t)
	r.settle(t, 0)
}

// While no broker can be reached the server's log grows. How much it may still grow is
// warned of; when the broker comes back in time, everything arrives and the warning ends.
func TestBrokerDownUntilTheSlotIsAtRisk(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_slot_wal_keep_size": "64MB", "wal_sender_timeout": "3s"}})
	proxy := cutproxy.Start(t, "")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen))
	w := watch(t, srv, fake, `CREATE TABLE outbox `+outboxColumns)
	w.cfg.PositionTopic = relay.PositionTopic
	w.run(t).delivers(t, "outbox")

	proxy.Refuse()
	proxy.Cut()
	w.exec(t, `INSERT INTO outbox SELECT n, 'TOPIC', 'k', 'T', '{}' FROM generate_series(2, 1000) n`)
	waitFor(t, 30*time.Second, "the warning", func() bool {
		w.exec(t, `SELECT pg_switch_wal(); SELECT txid_current()`)
		time.Sleep(2 * w.cfg.WatchInterval)
		return strings.Contains(w.log.String(), "more are written, the server may remove what it needs")
	})
	for _, want := range []string{"is the sink taking records?", "max_slot_wal_keep_size is 64 MB"} {
		w.logged(t, want)
	}

	must(t, proxy.Accept())
	began := time.Now()
	records := fake.ReadN(t, 1000, w.topic)
	t.Logf("%d records, %v after the broker could be reached", len(records), time.Since(began).Round(time.Millisecond))
	for i, rec := range records {
		if id := header(rec, "id"); id != strconv.Itoa(i+1) {
			t.Fatalf("record %d is of row %s", i+1, id)
		}
	}
	waitFor(t, 30*time.Second, "the end of the warning", func() bool {
		w.exec(t, `SELECT txid_current(); CHECKPOINT`)
		time.Sleep(2 * w.cfg.WatchInterval)
		return strings.Contains(w.log.String(), "no more than it should")
	})
	if got := len(fake.ReadAll(t, w.topic)); got != 1000 {
		t.Errorf("%d records, want each row once", got)
	}
}

// Where too few replicas are in sync the broker refuses, and whoever acknowledged alone
// would lose what it has. It is waited out, and noticed at once when it is over.
func TestNotEnoughReplicas(t *testing.T) {
	t.Parallel()
	leader := kafkatest.Start(t, kafkatest.Config{Properties: map[string]string{
		"default.replication.factor": "2", "min.insync.replicas": "2",
	}})
	follower := kafkatest.Start(t, kafkatest.Config{Joins: leader})
	r := newRig(t, pgtest.Database(t), leader.Cluster)
	process := r.run(t)
	var took []time.Duration
	underLoad(t, r, func() {
		for range cycles(t) {
			r.progress(t)
			must(t, follower.Shutdown(t.Context()))
			r.silent(t)
			refused := r.collector.Count()
			process.logged(t, "NOT_ENOUGH_REPLICAS")
			time.Sleep(time.Second)
			if n := r.collector.Count() - refused; n != 0 {
				t.Errorf("%d records were taken by one broker, two are demanded", n)
			}
			must(t, follower.Restart(t.Context()))
			took = append(took, r.recover(t))
		}
	})
	if slices.Min(took) > prompt {
		t.Errorf("recovered in %v, want one within %v", took, prompt)
	}
	process.terminate(t)
	r.settle(t, 0)
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
	r, fake := fakeRig(t)
	r.collector.Stop() // its client loses its way; what is in the log is asked of kfake, and read at the end
	stores := func() time.Duration {
		began, n := time.Now(), stored(r.topic, fake)
		waitFor(t, 30*time.Second, "records to be stored", func() bool { return stored(r.topic, fake) > n })
		return time.Since(began)
	}
	process := r.run(t)
	var took []time.Duration
	underLoad(t, r, func() {
		for range cycles(t) {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
				fake.Control.ShufflePartitionLeaders()
			}
			stores()
			gone := fake.Control.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: r.topic, Err: kerr.LeaderNotAvailable, Count: -1,
			})
			waitFor(t, 30*time.Second, "the topic to fall silent", func() bool {
				n := stored(r.topic, fake)
				time.Sleep(300 * time.Millisecond)
				return stored(r.topic, fake) == n
			})
			gone.Remove()
			took = append(took, stores())
		}
	})
	t.Logf("recovered in %v", took)
	if slices.Min(took) > prompt {
		t.Errorf("recovered in %v, want one within %v", took, prompt)
	}
	r.confirmed(t, 30*time.Second)
	process.terminate(t)
	r.settleOnce(t, r.kafka.ReadAll(t, r.topic))
}

// A topic is deleted and, under load, created anew. What the old one had acknowledged went
// with it; everything else is in the new one, in order, also if there are fewer partitions
// than there were.
func TestTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		kafka      *kafkatest.Cluster
		partitions int32 // of the new topic; the old one has 6
	}{
		{"as many partitions", kafkatest.Fake(t).Cluster, 6},
		{"more", kafkatest.Fake(t).Cluster, 9},
		{"fewer", kafkatest.Fake(t).Cluster, 4},
		{"fewer, at a broker", kafkatest.Broker(t), 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pgtest.Database(t), tc.kafka)
			process := r.run(t)
			r.load.run(t.Context(), t, 1000)
			r.arrived(t, 30*time.Second)
			r.collector.Stop() // nothing else will have been in the old topic
			admin := r.kafka.Admin(t)
			_, err := admin.DeleteTopic(t.Context(), r.topic)
			must(t, err)
			waitFor(t, 30*time.Second, "the broker to know that the topic is deleted", func() bool {
				topics, err := admin.ListTopics(t.Context(), r.topic)
				must(t, err)
				return errors.Is(topics[r.topic].Err, kerr.UnknownTopicOrPartition)
			})
			underLoad(t, r, func() {
				process.logged(t, "topic does not take records")
				r.moreEvents(t)
				_, err := admin.CreateTopic(t.Context(), tc.partitions, 1, nil, r.topic)
				must(t, err)
				process.logged(t, "topic was created anew")
				r.moreEvents(t)
			})
			r.confirmed(t, 30*time.Second)
			process.terminate(t)
			r.settleMoved(t)
		})
	}
}

// A topic gets more partitions under load. Keys move, which is warned of, but no record of a
// key is on its way to two partitions at a time.
func TestTopicGrows(t *testing.T) {
	t.Parallel()
	r, fake := fakeRig(t)
	r.collector.Stop()
	process := r.run(t)
	underLoad(t, r, func() {
		r.moreEvents(t)
		_, err := fake.Admin(t).CreatePartitions(t.Context(), 3, r.topic)
		must(t, err)
		// It is noticed at the next look at the metadata, which any trouble brings about.
		fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.topic, Err: kerr.NotLeaderForPartition})
		process.logged(t, "topic has more partitions, keys will move")
		r.moreEvents(t)
	})
	r.confirmed(t, 30*time.Second)
	process.terminate(t)
	grown := false
	for _, rec := range r.settleMoved(t) {
		grown = grown || rec.Partition >= 6
	}
	if !grown {
		t.Error("nothing is in the new partitions")
	}
}

// moreEvents waits until some more events are committed.
func (r *rig) moreEvents(t *testing.T) {
	t.Helper()
	n := r.load.total() + 500
	waitFor(t, 30*time.Second, "more events to be committed", func() bool { return r.load.total() >= n })
}

// settleMoved is settle, without repetitions, for a topic whose number of partitions has
// changed, which returns its records. Readers of two partitions see no order between them:
// all of a key that is in one partition has to be before all that is in another.
func (r *rig) settleMoved(t *testing.T) []*kgo.Record {
	t.Helper()
	type lane struct {
		key       string
		partition int32
	}
	lanes := map[lane][]*kgo.Record{}
	all := r.kafka.ReadAll(t, r.topic)
	for _, rec := range all {
		l := lane{string(rec.Key), rec.Partition}
		lanes[l] = append(lanes[l], rec)
	}
	runs := make([][]*kgo.Record, 0, len(lanes))
	for _, run := range lanes {
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b []*kgo.Record) int { return numberOf(a[0].Value) - numberOf(b[0].Value) })
	r.ledger.moves = true
	r.settleOnce(t, slices.Concat(runs...))
	return all
}

// settleOnce checks records, which nobody has collected, against what was committed: each
// event is to be there once.
func (r *rig) settleOnce(t *testing.T, records []*kgo.Record) {
	t.Helper()
	for _, rec := range records {
		r.record(rec)
	}
	r.ledger.check(t, r.load.snapshot())
	n, repeated, _ := r.ledger.seen(nil)
	t.Logf("%d events committed, %d records, %d repeated", r.load.total(), n, repeated)
	if repeated > 0 {
		t.Errorf("%d records are repeated", repeated)
	}
}
