package crash

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// In a cluster of three brokers, leaders move: an administrator moves them, and brokers are shut down and killed. The
// relay is killed as well. Delivery continues without a broker. Nothing is lost, duplicated or out of order.
func TestReplicatedCluster(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.StartReplicated(t)
	srv := pgtest.Start(t, pgserver.Config{})
	m := &moved{T: t, Rig: rig.NewOn(t, rig.DatabaseOn(t, srv), cluster.Cluster)}
	withoutLeader := func(stop func(*kafkatest.Server, context.Context) error, meanwhile func()) {
		broker := cluster.Leader(t, m.Topic, 0)
		rig.Must(t, stop(broker, t.Context()))
		meanwhile()
		m.recover()
		rig.Must(t, broker.Restart(t.Context()))
		rig.Must(t, cluster.AwaitInSync(t.Context()))
	}
	nothing := func() {}
	m.start()
	rig.UnderLoad(t, m.Rig, func() {
		m.recover()
		for range 3 {
			rig.Must(t, cluster.MoveLeaders(t.Context()))
			m.recover()
		}
		withoutLeader((*kafkatest.Server).Shutdown, nothing)
		withoutLeader((*kafkatest.Server).Kill, nothing)
		withoutLeader((*kafkatest.Server).Kill, m.restart)
	})
	m.Arrived(t)
	m.process.Terminate(t)
	m.Settle(t, 0)
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
