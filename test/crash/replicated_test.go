package crash

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// In a cluster of three brokers, leaders and coordinators of transactions move: an administrator moves them, and
// brokers are shut down and killed. The relays are killed as well. Delivery continues without a broker. Nothing is lost or
// out of order, with and without exactly_once. With it, nothing is duplicated. Without it, only the kill of the relay
// causes duplicates.
func TestReplicatedCluster(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.StartReplicated(t)
	srv := pgtest.Start(t, pgserver.Config{})
	exactly := &moved{T: t, Rig: rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), cluster.Cluster)}
	atLeast := &moved{T: t, Rig: rig.NewOn(t, pgtest.DatabaseOn(t, srv), cluster.Cluster)}
	both := []*moved{exactly, atLeast}
	each := func(f func(m *moved)) {
		for _, m := range both {
			f(m)
		}
	}
	withoutBroker := func(stop func(*kafkatest.Server, context.Context) error, broker *kafkatest.Server, meanwhile func(m *moved)) {
		rig.Must(t, stop(broker, t.Context()))
		each(meanwhile)
		each((*moved).recover)
		rig.Must(t, broker.Restart(t.Context()))
		cluster.AwaitInSync(t)
	}
	none := func(*moved) {}
	each((*moved).start)
	id := kafka.TransactionalID(exactly.Slot)
	rig.UnderLoad(t, exactly.Rig, func() {
		rig.UnderLoad(t, atLeast.Rig, func() {
			each((*moved).recover)
			for range 3 {
				before := cluster.TransactionCoordinator(t, id)
				cluster.MoveLeaders(t)
				each((*moved).recover)
				if cluster.TransactionCoordinator(t, id) == before {
					t.Error("the coordinator of transactions has not moved")
				}
			}
			withoutBroker((*kafkatest.Server).Shutdown, cluster.Leader(t, exactly.Topic, 0), none)
			withoutBroker((*kafkatest.Server).Kill, cluster.TransactionCoordinator(t, id), none)
			withoutBroker((*kafkatest.Server).Kill, cluster.TransactionCoordinator(t, id), (*moved).restart)
		})
	})
	each(func(m *moved) {
		m.Arrived(t)
		m.process.Terminate(t)
	})
	exactly.Settle(t, 0)
	atLeast.Settle(t, atLeast.Load.Total()) // while a broker was down, the position did not advance
}

// A moved is a rig whose Kafka is a cluster.
type moved struct {
	*testing.T
	*rig.Rig

	process *rig.Process
}

func (m *moved) start() {
	m.Helper()
	m.process = m.Rig.Run(m.T, "--set", "sink.kafka.brokers="+strings.Join(m.Kafka.Addrs, ","))
}

func (m *moved) restart() {
	m.Helper()
	if n := m.Ledger.Counts().Duplicates; n > 0 {
		m.Errorf("%d duplicates before the relay was killed", n)
	}
	m.process.Kill(m.T)
	m.start()
}

// recover waits until a row that is committed after the call is in the topic.
func (m *moved) recover() {
	m.Helper()
	began, before := time.Now(), m.Load.Total()
	wait.For(m.T, "a commit", func() bool { return m.Load.Total() > before })
	m.Arrived(m.T)
	m.Logf("recovered in %v", time.Since(began).Round(time.Millisecond))
}
