package test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// cycles is how often each crash test breaks something.
func cycles(t *testing.T) int {
	t.Helper()
	return envInt(t, "OUTBOX_TEST_CYCLES", 3)
}

// underLoad runs f while the workload writes at a moderate pace, and stops the writing
// when f returns.
func underLoad(t *testing.T, r *rig, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { // also when f has ended the test
		stop()
		<-done
	}()
	r.load.pace = 2 * time.Millisecond
	r.load.maxRows = 10
	go func() { // waited for below
		defer close(done)
		r.load.run(ctx, t, 1<<30)
	}()
	f()
}

// progress waits until an event that was committed after the call has arrived.
func (r *rig) progress(t *testing.T) {
	t.Helper()
	before := r.load.total()
	waitFor(t, 30*time.Second, "an event to be committed", func() bool { return r.load.total() > before })
	r.arrived(t, 30*time.Second)
}

// unconfirmed is how many events a kill may repeat: what is written in a status interval
// and what is in flight, with room for a slow machine.
const unconfirmed = 20_000

// Killed again and again under load, the relay loses nothing and keeps the order.
func TestKillRelay(t *testing.T) {
	endUnderLoad(t, (*relayProcess).kill, cycles(t)*unconfirmed)
}

// Stopped by SIGTERM under load, the relay exits 0 and nothing is repeated.
func TestTerminateUnderLoad(t *testing.T) {
	endUnderLoad(t, (*relayProcess).terminate, 0)
}

// endUnderLoad ends the relay by end and starts it again while the workload writes, and
// allows for so many repetitions in all.
func endUnderLoad(t *testing.T, end func(*relayProcess, *testing.T), duplicates int) {
	t.Helper()
	onEachServer(t, func(t *testing.T, r *rig) {
		process := r.run(t)
		underLoad(t, r, func() {
			for range cycles(t) {
				r.progress(t)
				end(process, t)
				process = r.run(t)
			}
			r.progress(t)
		})
		r.arrived(t, 30*time.Second)
		process.terminate(t)
		r.settle(t, duplicates)
	})
}

// ownRig is a rig on servers of its own, which may be stopped and killed.
func ownRig(t *testing.T) (*rig, *pgserver.Server, *kafkatest.Server) {
	t.Helper()
	srv := pgtest.Start(t, pgserver.Config{})
	broker := kafkatest.Start(t, kafkatest.Config{})
	return newRig(t, pgtest.DatabaseOn(t, srv), broker.Cluster), srv, broker
}

// Postgres is stopped, crashed and killed under load. The relay survives all of it and,
// since it outlives the server, repeats nothing.
func TestRestartPostgres(t *testing.T) {
	r, srv, _ := ownRig(t)
	process := r.run(t)
	underLoad(t, r, func() {
		for range cycles(t) {
			for name, stop := range map[string]func(context.Context) error{
				"fast": srv.Shutdown, "immediate": srv.Immediate, "kill": srv.Kill,
			} {
				r.progress(t)
				began := time.Now()
				if err := stop(t.Context()); err != nil {
					t.Fatalf("%s stop: %v", name, err)
				}
				if took := time.Since(began); name == "fast" && took > 5*time.Second {
					t.Errorf("a fast stop of the server took %v", took)
				}
				must(t, srv.Restart(t.Context()))
			}
		}
		r.progress(t)
	})
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	r.settle(t, 0)
}

// The broker is restarted, killed and frozen under load: nothing is lost, nothing repeated.
func TestRestartBroker(t *testing.T) {
	r, _, broker := ownRig(t)
	process := r.run(t)
	underLoad(t, r, func() {
		for range cycles(t) {
			r.progress(t)
			must(t, broker.Shutdown(t.Context()))
			must(t, broker.Restart(t.Context()))
			r.progress(t)
			must(t, broker.Kill(t.Context()))
			must(t, broker.Restart(t.Context()))
			r.progress(t)
			must(t, broker.Pause())
			time.Sleep(2 * time.Second)
			must(t, broker.Resume())
		}
		r.progress(t)
	})
	r.arrived(t, 60*time.Second)
	process.terminate(t)
	r.settle(t, 0)
}

// With the broker down the relay waits at the start; with the broker gone in the middle it
// waits, in flat memory, while the backlog stays in the log. Postgres can be stopped
// meanwhile.
func TestBrokerDown(t *testing.T) {
	r, srv, broker := ownRig(t)
	process := r.run(t) // makes publication and slot
	r.load.run(t.Context(), t, 1000)
	r.arrived(t, 30*time.Second)
	process.terminate(t)

	must(t, broker.Shutdown(t.Context()))
	process = start(t, "run", "-c", r.config)
	r.load.run(t.Context(), t, 20_000)
	must(t, broker.Restart(t.Context()))
	process.logged(t, "streaming")
	r.arrived(t, 60*time.Second)

	must(t, broker.Shutdown(t.Context()))
	r.load.run(t.Context(), t, envInt(t, "OUTBOX_TEST_ROWS", 100_000))
	began := time.Now()
	must(t, srv.Shutdown(t.Context()))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("with the broker down a fast stop of the server took %v", took)
	}
	must(t, srv.Restart(t.Context()))
	must(t, broker.Restart(t.Context()))
	r.arrived(t, 2*time.Minute)
	process.flat(t)
	process.terminate(t)
	r.settle(t, 0)
}

// Asked to stop while the broker is gone, the relay ends within drain_timeout, confirms
// nothing that is not acknowledged, and exits 0.
func TestTerminateWithBrokerDown(t *testing.T) {
	r, _, broker := ownRig(t)
	t.Setenv("OUTBOX_CDC_DRAIN_TIMEOUT", "2s")
	process := r.run(t)
	r.load.run(t.Context(), t, 1000)
	r.arrived(t, 30*time.Second)
	must(t, broker.Kill(t.Context()))
	r.load.run(t.Context(), t, 5000)
	process.signal(t, syscall.SIGTERM)
	if code := process.exit(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	must(t, broker.Restart(t.Context()))
	process = r.run(t)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	r.settle(t, unconfirmed)
}
