package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// If Kafka rejects records, a stop takes longer than source.lease. The relay keeps the slot meanwhile, and
// the next start resends nothing.
func TestSlowStopKeepsTheSlot(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t, kfake.NumBrokers(1))
	r := rig.NewOn(t, pgtest.Database(t), fake.Cluster)
	process := r.Run(t, "--set", "source.lease=3s")
	r.Deliver(t, 100)
	conn := r.Connect(t)
	if got := rig.Ask[int](t, conn, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.Slot); got != 1 {
		t.Fatal("the slot is not in use")
	}
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	r.Load.Run(t.Context(), t, 100)
	rig.WaitFor(t, 60*time.Second, "a rejected record", func() bool { return fault.Hits() > 0 })
	rig.Must(t, process.Cmd.Process.Signal(syscall.SIGTERM))
	deadline := time.Now().Add(7 * time.Second)
	for time.Now().Before(deadline) {
		if got := rig.Ask[int](t, conn, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.Slot); got != 1 {
			t.Fatal("Postgres has released the slot")
		}
		time.Sleep(100 * time.Millisecond)
	}
	fault.Remove()
	if code := process.Exit(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.Run(t).Terminate(t)
	r.Settle(t, 0)
}
