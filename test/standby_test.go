package test

import (
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/cutproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// stand starts another relay, which finds the slot in use and says so once.
func (r *rig) stand(t *testing.T) *relayProcess {
	t.Helper()
	p := start(t, "run", "-c", r.config)
	p.logged(t, "waiting for the source")
	return p
}

// A standby takes over within seconds, whether the first relay has died or has only
// disappeared from the server's network, where it goes on for a while. In the end every key
// has its newest value last.
func TestTakeover(t *testing.T) {
	const (
		timeout = 5 * time.Second // wal_sender_timeout
		backoff = 2 * time.Second // of the standby
	)
	for name, tc := range map[string]struct {
		lose   func(t *testing.T, first *relayProcess, link *cutproxy.Proxy)
		within time.Duration
	}{
		"killed":      {func(t *testing.T, first *relayProcess, _ *cutproxy.Proxy) { t.Helper(); first.kill(t) }, backoff + slack},
		"partitioned": {func(_ *testing.T, _ *relayProcess, link *cutproxy.Proxy) { link.Strand() }, timeout + backoff + slack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": "5s"}})
			r := newRig(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t))
			direct := r.config
			link := r.through(t, "")
			first := r.run(t)
			r.config = direct
			second := r.stand(t)
			var took time.Duration
			underLoad(t, r, func() {
				r.progress(t)
				began := time.Now()
				tc.lose(t, first, link)
				r.progress(t)
				took = time.Since(began)
			})
			t.Logf("taken over after %v", took.Round(time.Millisecond))
			if took > tc.within {
				t.Errorf("it took %v, it may take %v", took, tc.within)
			}
			r.arrived(t, 30*time.Second)
			if n := second.times(`err="replication slot in use`); n != 1 {
				t.Errorf("the standby says %d times that it waits:\n%s", n, second.stderr)
			}
			if name == "partitioned" {
				first.logged(t, "in use") // it notices, connects again, and stands by
				second.terminate(t)
				first.loggedTimes(t, "msg=streaming", 2)
				r.load.run(t.Context(), t, 500)
				r.arrived(t, 30*time.Second)
				second = first
			}
			second.terminate(t)
			r.settle(t, 2*unconfirmed)
		})
	}
}

// A relay that was stopped in the middle of a full window, so long that another one has taken
// over and delivered everything, sends nothing of it when it goes on, but waits for its turn.
func TestPausedRelay(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": "5s"}})
	broker := kafkatest.Start(t, kafkatest.Config{})
	r := newRig(t, pgtest.DatabaseOn(t, srv), broker.Cluster)
	first := r.run(t)
	second := r.stand(t)
	r.load.run(t.Context(), t, 1000)
	r.arrived(t, 30*time.Second)

	must(t, broker.Pause())
	r.load.run(t.Context(), t, 80_000)
	conn := r.connect(t)
	waitFor(t, time.Minute, "the window to be full", func() bool {
		return ask[bool](t, conn, `SELECT COALESCE(wait_event, '') = 'WalSenderWriteData' FROM pg_stat_activity JOIN pg_replication_slots ON active_pid = pid WHERE slot_name = $1`, r.slot)
	})
	first.signal(t, syscall.SIGSTOP)
	must(t, broker.Resume())
	second.logged(t, "msg=streaming")
	r.arrived(t, 30*time.Second)
	_, before, _ := r.ledger.seen(nil)

	first.signal(t, syscall.SIGCONT)
	first.logged(t, "waiting for the source")
	first.logged(t, "in use")
	must(t, r.collector.CatchUp(t.Context()))
	_, after, _ := r.ledger.seen(nil)
	t.Logf("%d records were repeated by the takeover, %d by the relay that was stopped", before, after-before)
	if after > before {
		t.Errorf("%d records were sent again by a relay that has lost its slot", after-before)
	}
	r.ledger.check(t, r.load.snapshot())

	r.confirmed(t, 30*time.Second) // what is not recorded yet would be repeated
	second.kill(t)
	first.loggedTimes(t, "msg=streaming", 2)
	r.load.run(t.Context(), t, 1000)
	r.arrived(t, 30*time.Second)
	first.terminate(t)
	r.settle(t, unconfirmed)
}
