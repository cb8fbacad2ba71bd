package crash

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/brokertest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

const (
	// overPace is a load that every broker keeps up with: a webhook has a request for each record.
	overPace = 20 * time.Millisecond

	// unanswered is the maximum number of rows that the writers have committed and not counted yet.
	unanswered = 40

	// anonymousLimit is the limit for the memory of the relay without the pages of its binary, in MB, while the broker is
	// down: the window, and what the client has for each request in flight.
	anonymousLimit = 28
)

// Over each broker but Kafka, the relay and the broker are stopped and killed under load. Nothing is lost, and the order
// holds. A broker that drops what is sent again has every event once. With another one, only rows that were not confirmed when
// the relay or the broker was killed are stored twice.
func TestCrashOver(t *testing.T) {
	need.FullRun(t, "it needs a server of each broker")
	t.Parallel()
	for name, start := range brokertest.All() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			o := &over{broker: b, process: b.Process}
			addr := b.Addr
			if o.process == nil {
				p := faultproxy.Start(t, b.Addr)
				o.process, addr = &link{proxy: p}, p.Addr()
			}
			o.Rig = rig.NewOver(t, rig.Database(t), b.Rig(addr))
			t.Run("relay stopped", o.relayStopped)
			t.Run("relay killed", o.relayKilled)
			t.Run("broker down", o.brokerDown)
			t.Run("broker restarted", o.brokerRestarted)
		})
	}
}

// over is a rig with another broker than Kafka.
type over struct {
	*rig.Rig
	broker  *brokertest.Broker
	process brokertest.Process
	allowed int // number of duplicates that the faults so far explain
}

// relayStopped: a relay that SIGTERM stops exits with 0, and the next one resends nothing.
func (o *over) relayStopped(t *testing.T) {
	process := o.Run(t)
	rig.UnderLoadAt(t, o.Rig, overPace, func() {
		for range rig.Cycles(t) {
			o.Progress(t)
			process.Terminate(t)
			process = o.Run(t)
		}
		o.Progress(t)
	})
	o.ends(t, process)
}

func (o *over) relayKilled(t *testing.T) {
	process := o.Run(t)
	rig.UnderLoadAt(t, o.Rig, overPace, func() {
		for range rig.Cycles(t) {
			o.fault(t, func() { process.Kill(t) })
			process = o.Run(t)
		}
		o.Progress(t)
	})
	o.ends(t, process)
}

// brokerDown: while the broker is down, the backlog stays in Postgres, and not in the memory of the relay.
func (o *over) brokerDown(t *testing.T) {
	process := o.Run(t)
	o.Load.Pace, o.Load.MaxRows = 0, 50
	o.Deliver(t, 1000)
	rig.Must(t, o.process.Shutdown(t.Context()))
	o.Load.Run(t.Context(), t, 10_000)
	first := process.Memory(t)
	o.Load.Run(t.Context(), t, 20_000)
	last := process.Memory(t)
	t.Logf("resident memory: %+v MB with 10,000 rows, %+v MB with 30,000", first, last)
	if last.Anonymous > anonymousLimit {
		t.Errorf("the memory of the relay is %d MB without the pages of the binary, the limit is %d MB", last.Anonymous, anonymousLimit)
	}
	rig.Must(t, o.process.Restart(t.Context()))
	o.Arrived(t)
	o.ends(t, process)
}

// brokerRestarted: the broker is stopped, killed and frozen. It has a fifth of the cycles, because some brokers start slowly.
func (o *over) brokerRestarted(t *testing.T) {
	process := o.Run(t)
	rig.UnderLoadAt(t, o.Rig, overPace, func() {
		for range (rig.Cycles(t) + 4) / 5 {
			for _, stop := range []func(context.Context) error{o.process.Shutdown, o.process.Kill} {
				o.fault(t, func() { rig.Must(t, stop(t.Context())) })
				rig.Must(t, o.process.Restart(t.Context()))
				o.Progress(t)
			}
			o.fault(t, func() { rig.Must(t, o.process.Pause()) })
			time.Sleep(2 * time.Second)
			rig.Must(t, o.process.Resume())
			o.Progress(t)
		}
	})
	o.ends(t, process)
}

// fault breaks something, when later rows than those that are confirmed have arrived. The confirmed ones are not sent again.
func (o *over) fault(t *testing.T, f func()) {
	t.Helper()
	before := o.Load.Total()
	o.Confirmed(t)
	o.Progress(t)
	f()
	if !o.broker.Once {
		o.allowed += o.Load.Total() - before + unanswered
	}
}

// ends stops the relay, and compares what the broker has with the committed events.
func (o *over) ends(t *testing.T, process *rig.Process) {
	t.Helper()
	o.Arrived(t)
	process.Terminate(t)
	t.Logf("%d duplicates are allowed", o.allowed)
	o.Settle(t, o.allowed)
}

// A link is the [brokertest.Process] of a broker that runs in the process of the test: the relay loses it.
type link struct {
	proxy   *faultproxy.Proxy
	release func()
}

func (l *link) Kill(context.Context) error {
	l.proxy.Refuse()
	return nil
}

func (l *link) Shutdown(ctx context.Context) error { return l.Kill(ctx) }

func (l *link) Restart(context.Context) error {
	l.proxy.Accept()
	return nil
}

func (l *link) Pause() error {
	l.release = l.proxy.Stall()
	return nil
}

func (l *link) Resume() error {
	l.release()
	return nil
}
