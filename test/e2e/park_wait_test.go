package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// hide begins a transaction of another producer in each partition of a topic. Consumers with read_committed see no later
// record before it ends.
func hide(t *testing.T, cluster *kafkatest.Cluster, topic string, partitions int32) (client *kgo.Client) {
	t.Helper()
	client = cluster.Client(t, kgo.TransactionalID(kafkatest.UniqueName(t)), kgo.TransactionTimeout(wait.Patience()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	rig.Must(t, client.BeginTransaction())
	for p := range partitions {
		rig.Must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: []byte("other")}).FirstErr())
	}
	return client
}

// A transaction of another producer is open in the dead-letter topic, and hides dead letters of a parked key. The key stays
// parked until it ends, and release prints which partition waits. Then the number of records that are released is the
// number that were parked. TestReleaseWaitsForHiddenLetters of package relay does not wait in real time.
func TestReleaseWaitsForAnOpenTransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a release tries for five seconds before it names the partition, and tries again later")
	cluster := kafkatest.Broker(t)
	for name, hidesFirst := range map[string]bool{"behind the first dead letter": false, "before the first dead letter": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newParkRig(t, cluster, "")
			process := r.Run(t)
			r.insert(t, "a", 2, 10)
			if !hidesFirst {
				r.large(t, "a")
			}
			r.Confirmed(t)
			other := hide(t, cluster, r.dead, 3)
			if hidesFirst {
				r.large(t, "a")
			}
			r.insert(t, "a", 5, 10)
			r.Confirmed(t)
			r.allowLarge(t)

			releasing := rig.Start(t, "dead-letter", "release", "-c", r.Config, "--key", "a", "--wait", wait.Patience().String())
			wait.For(t, "the release to wait", func() bool { return releasing.Ended() || releasing.Times("a transaction is open") > 0 },
				func() any { return releasing.Stderr.String() })
			if releasing.Ended() {
				t.Errorf("the release does not wait: exit code %d\n%s", releasing.Exit(t), releasing.Stderr)
			}
			r.insert(t, "a", 2, 10)
			r.Confirmed(t)
			rig.Must(t, other.EndTransaction(t.Context(), kgo.TryAbort))
			releasing.Fails(t, 0, "8 records sent")
			r.insert(t, "a", 1, 10)
			r.Confirmed(t)
			r.demandNumbers(t, r.Topic, "a", countTo(r.rows["a"]))
			process.Terminate(t)
		})
	}
}
