package crash

import (
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// With exactly_once, nothing is duplicated when the relay is killed, when the broker is killed, and when Kafka aborts a
// transaction because the relay was frozen for longer than transaction_timeout. The frozen relay continues by itself.
func TestExactlyOnceFaults(t *testing.T) {
	t.Parallel()
	const transactionTimeout = 10 * time.Second // see rig.ExactlyOnce
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{})
	r := rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), broker.Cluster)
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			process.Kill(t)
			process = r.Run(t)
			r.Progress(t)
			rig.Must(t, broker.Kill(t.Context()))
			rig.Must(t, broker.Restart(t.Context()))
			r.Recover(t)
		}
		for range 6 { // until it is frozen in the middle of a transaction
			r.Progress(t)
			process.Signal(t, syscall.SIGSTOP)
			time.Sleep(transactionTimeout + 12*time.Second) // transaction.abort.timed.out.transaction.cleanup.interval.ms is 10 s
			process.Signal(t, syscall.SIGCONT)
			r.Recover(t)
			if process.Times("Kafka has aborted the transaction") > 0 {
				break
			}
		}
	})
	r.Arrived(t, time.Minute)
	process.Terminate(t)
	r.Settle(t, 0)
	if n := process.Times("Kafka has aborted the transaction"); n == 0 {
		t.Errorf("no transaction was aborted:\n%s", process.Stderr)
	}
}

// A relay with exactly_once is frozen until a standby has taken over. When it continues, nothing that it still sends
// becomes visible.
func TestExactlyOnceZombie(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": "3s"}})
	r := rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t))
	first := r.Run(t, "--set", "source.lease=3s")
	second := rig.Start(t, "run", "-c", r.Config, "--set", "source.lease=3s")
	second.Logged(t, "standby: another process uses the slot")
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			first.Signal(t, syscall.SIGSTOP)
			r.Recover(t) // by the standby
			first.Signal(t, syscall.SIGCONT)
			first, second = second, first
		}
		r.Progress(t)
	})
	r.Arrived(t, 30*time.Second)
	first.Terminate(t)
	second.Terminate(t)
	r.Settle(t, 0)
}
