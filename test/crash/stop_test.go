package crash

import (
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A stopped is a rig with exactly_once and a position topic of its own.
type stopped struct {
	*rig.Rig
	positions string
}

func newStopped(t *testing.T, cluster *kafkatest.Cluster) *stopped {
	t.Helper()
	s := &stopped{rig.NewExactlyOnce(t, pgtest.Database(t), cluster), kafkatest.UniqueName(t)}
	cluster.DeleteTopics(t, s.positions)
	return s
}

// args are the arguments of the relay.
func (s *stopped) args() []string {
	return []string{"--set", "position_topic=" + s.positions, "--set", "drain_timeout=1s"}
}

// A relay with exactly_once is stopped while a topic rejects the records of its transaction. The relay aborts the
// transaction, so that a consumer of another topic does not wait for transaction_timeout.
func TestTerminateInTransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a transaction")
	fake := kafkatest.Fake(t)
	s := newStopped(t, fake.Cluster)
	admin := s.Kafka.Admin(t)
	process := s.Run(t, s.args()...)
	s.Deliver(t, 100)
	rejects := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	s.Load.Run(t.Context(), t, 100)
	wait.For(t, "an open transaction", func() bool { return !kafkatest.ReadsToEnd(t, admin, s.positions) })
	process.Signal(t, syscall.SIGTERM)
	if code := process.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !kafkatest.ReadsToEnd(t, admin, s.positions) {
		t.Error("the transaction is still open")
	}
	rejects.Remove()
	s.GoesOn(t, s.args()...)
	s.Settle(t, 0)
}

// A relay that stops at a rejected record aborts the transaction, too.
func TestRejectInTransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a transaction")
	s := newStopped(t, kafkatest.Broker(t))
	admin := s.Kafka.Admin(t)
	limit := func(bytes string) {
		changed, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}, s.Topic)
		rig.Must(t, err)
		answer, err := changed.On(s.Topic, nil)
		rig.Must(t, err)
		rig.Must(t, answer.Err)
	}
	process := s.Run(t, s.args()...)
	s.Deliver(t, 100)
	limit("80")
	s.Load.Run(t.Context(), t, 100)
	if code := process.Exit(t); code != relay.ExitBadRecord {
		t.Errorf("exit code %d", code)
	}
	wait.For(t, "the end of the transaction", func() bool { return kafkatest.ReadsToEnd(t, admin, s.positions) }) // the coordinator writes the markers after its response
	limit("1000000")
	s.GoesOn(t, s.args()...)
	s.Settle(t, 0)
}

// While Kafka is down, a relay with exactly_once stops as fast as any other: it gives up after drain_timeout, and after 5 s
// more the abort of its transaction. The next relay loses and repeats nothing.
func TestTerminateInTransactionWithBrokerDown(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a transaction")
	broker := kafkatest.Start(t, kafkatest.Config{})
	s := newStopped(t, broker.Cluster)
	process := s.Run(t, s.args()...)
	s.Deliver(t, 100)
	rig.Must(t, broker.Kill(t.Context()))
	s.Load.Run(t.Context(), t, 1000)
	process.Signal(t, syscall.SIGTERM)
	if code := process.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	rig.Must(t, broker.Restart(t.Context()))
	s.GoesOn(t, s.args()...)
	s.Settle(t, 0)
}
