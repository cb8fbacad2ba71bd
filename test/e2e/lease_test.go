package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// If Kafka rejects records, a stop takes longer than source.lease. The relay keeps the slot meanwhile, and
// the next start resends nothing.
func TestSlowStopKeepsTheSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a slow stop")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1))
	r := rig.NewOn(t, rig.Database(t), fake.Cluster)
	process := r.Run(t, "--set", "source.lease=3s")
	r.Deliver(t, 100)
	conn := r.Connect(t)
	if got := rig.Ask[int](t, conn, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.Slot); got != 1 {
		t.Fatal("the slot is not in use")
	}
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	r.Load.Run(t.Context(), t, 100)
	wait.For(t, "a rejected record", func() bool { return fault.Hits() > 0 })
	rig.Must(t, process.Cmd.Process.Signal(syscall.SIGTERM))
	for range 70 { // 7 s
		if got := rig.Ask[int](t, conn, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.Slot); got != 1 {
			t.Fatal("Postgres has released the slot")
		}
		<-time.After(100 * time.Millisecond)
	}
	fault.Remove()
	if code := process.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.Run(t).Terminate(t)
	r.Settle(t, 0)
}
