package crash

import (
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A relay that is repeatedly killed under load loses nothing, keeps the order, and resends nothing.
func TestKillRelay(t *testing.T) {
	t.Parallel()
	endUnderLoad(t, (*rig.Process).Kill)
}

// A relay that SIGTERM stops under load exits with 0 and resends nothing.
func TestTerminateUnderLoad(t *testing.T) {
	t.Parallel()
	endUnderLoad(t, (*rig.Process).Terminate)
}

// endUnderLoad repeatedly ends the relay with end and restarts it while the workload writes.
func endUnderLoad(t *testing.T, end func(*rig.Process, *testing.T)) {
	t.Helper()
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t)
		rig.UnderLoad(t, r, func() {
			for range rig.Cycles(t) {
				r.Progress(t)
				end(process, t)
				process = r.Run(t)
			}
			r.Progress(t)
		})
		r.Arrived(t)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// longLease is for tests of a fast stop of Postgres: if nothing responds to a WAL sender, the stop takes the lease.
var longLease = []string{"--set", "source.lease=1m"}

// If the broker is down when the relay starts or later, the relay retries. Its memory stays constant,
// because the backlog stays in the WAL. Postgres can restart meanwhile.
func TestBrokerDown(t *testing.T) {
	t.Parallel()
	r, srv, broker := rig.NewOwnBroker(t)
	process := r.Run(t) // creates publication and slot
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	process.Terminate(t)

	rig.Must(t, broker.Shutdown(t.Context()))
	args := append([]string{"run", "-c", r.Config, "--set", "startup_timeout=2m"}, longLease...) // a broker on a loaded machine takes more than 30 s
	process = rig.Start(t, args...)
	r.Load.Run(t.Context(), t, 20_000)
	rig.Must(t, broker.Restart(t.Context()))
	process.Logged(t, "streaming")
	r.Arrived(t)

	rig.Must(t, broker.Shutdown(t.Context()))
	r.Load.Run(t.Context(), t, rig.Rows(t))
	began := time.Now()
	rig.Must(t, srv.Shutdown(t.Context()))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("with the broker down a fast stop of the server took %v", took)
	}
	rig.Must(t, srv.Restart(t.Context()))
	rig.Must(t, broker.Restart(t.Context()))
	r.Arrived(t)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// If the broker is down, the relay stops within drain_timeout after SIGTERM and exits with 0. It confirms
// nothing that Kafka has not acknowledged.
func TestTerminateWithBrokerDown(t *testing.T) {
	t.Parallel()
	r, _, broker := rig.NewOwnBroker(t)
	process := r.Run(t, "--set", "drain_timeout=2s")
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	rig.Must(t, broker.Kill(t.Context()))
	r.Load.Run(t.Context(), t, 5000)
	process.Signal(t, syscall.SIGTERM)
	if code := process.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	rig.Must(t, broker.Restart(t.Context()))
	process = r.Run(t)
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
