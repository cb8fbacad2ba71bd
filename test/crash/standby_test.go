package crash

import (
	"fmt"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// standBy starts another relay, and waits until it logs that another process uses the slot.
func standBy(t *testing.T, r *rig.Rig) *rig.Process {
	t.Helper()
	p := rig.Start(t, "run", "-c", r.Config)
	p.Logged(t, "standby: another process uses the slot")
	return p
}

// A standby acquires the slot within seconds, whether the first relay was killed or has lost its network
// connection and still runs for a while. No row is
// in its topic twice.
func TestTakeover(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for the lease")
	const (
		lease   = 8 * time.Second // source.lease; wal_sender_timeout of the server is longer
		backoff = 2 * time.Second // of the standby
	)
	for name, tc := range map[string]struct {
		lose   func(t *testing.T, first *rig.Process, link *faultproxy.Proxy)
		within time.Duration
	}{
		"killed":      {func(t *testing.T, first *rig.Process, _ *faultproxy.Proxy) { t.Helper(); first.Kill(t) }, backoff + rig.Slack},
		"partitioned": {func(_ *testing.T, _ *rig.Process, link *faultproxy.Proxy) { link.Partition() }, lease + backoff + rig.Slack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.NewOn(t, rig.Database(t), kafkatest.Broker(t))
			direct := r.Config
			link := r.Through(t, "")
			first := r.Run(t)
			r.Config = direct
			second := standBy(t, r)
			var took time.Duration
			rig.UnderLoad(t, r, func() {
				r.Progress(t)
				began := time.Now()
				tc.lose(t, first, link)
				r.Progress(t)
				took = time.Since(began)
				link.Heal()
			})
			t.Logf("the standby delivers after %v", took.Round(time.Millisecond))
			if took > tc.within {
				t.Errorf("it took %v, want at most %v", took, tc.within)
			}
			r.Arrived(t)
			if n := second.Times("standby: another process uses the slot"); n != 1 {
				t.Errorf("the standby logs %d times that it waits:\n%s", n, second.Stderr)
			}
			if name == "partitioned" {
				first.Logged(t, "standby: another process uses the slot") // it detects the lost slot, reconnects, and is a standby
				second.Terminate(t)
				first.LoggedTimes(t, "msg=streaming", 2)
				r.Load.Run(t.Context(), t, 500)
				r.Arrived(t)
				second = first
			}
			second.Terminate(t)
			r.Settle(t, 0)
		})
	}
}

// A relay is paused with a full window, until a standby has acquired the slot and delivered every row.
// When the relay continues, it sends none of its records, and becomes a standby.
func TestPausedRelay(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for the lease")
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": "5s"}})
	r := rig.NewOn(t, rig.DatabaseOn(t, srv), broker.Cluster)
	const window = 1000
	first := r.Run(t, "--set", fmt.Sprint("sink.kafka.window.records=", window))
	second := standBy(t, r)
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)

	rig.Must(t, broker.Pause())
	r.Load.Run(t.Context(), t, 5*window)
	full := regexp.MustCompile(fmt.Sprintf(`(?m)^outbox_cdc_in_flight_records(\{.*\})? %d$`, window))
	wait.For(t, "the window to be full", func() bool {
		_, metrics := first.Ask(t, "metrics")
		return full.MatchString(metrics)
	})
	first.Signal(t, syscall.SIGSTOP)
	rig.Must(t, broker.Resume())
	second.Logged(t, "msg=streaming")
	r.Arrived(t)

	first.Signal(t, syscall.SIGCONT)
	first.Logged(t, "waiting for the source")
	first.Logged(t, "standby: another process uses the slot")
	rig.Must(t, r.Collector.CatchUp(t.Context()))
	r.Ledger.Check(t, r.Load.Snapshot(), 0)

	second.Kill(t)
	first.LoggedTimes(t, "msg=streaming", 2)
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	first.Terminate(t)
	r.Settle(t, 0)
}
