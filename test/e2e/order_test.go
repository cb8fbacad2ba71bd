package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

const noBrokerFence = "the broker accepts records of an older relay"

// The relay does not warn about a broker that rejects older producer epochs.
func TestBrokerFence(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it freezes a relay until another has taken over")
	r := rig.New(t)
	process := r.Run(t, "--set", "log.level=debug")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Logged(t, "checked whether the broker rejects an older relay")
	process.Terminate(t)
	if out := process.Stderr.String(); strings.Contains(out, noBrokerFence) || !strings.Contains(out, "err=<nil>") {
		t.Errorf("the log:\n%s", out)
	}
	r.Settle(t, 0)
}

// If the broker accepts records with any producer epoch, the relay warns once, and still delivers every
// row.
func TestNoBrokerFence(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/relay/owner tests the warning always")
	r, fake := rig.NewFake(t, kfake.NumBrokers(1))
	fake.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.Control.KeepControl()
		if !strings.Contains(string(req.AppendTo(nil)), "/order-check") {
			return nil, nil, false
		}
		return kafkatest.Accept(req.(*kmsg.ProduceRequest)), nil, true
	})
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Logged(t, noBrokerFence)
	process.Terminate(t)
	if out := process.Stderr.String(); strings.Count(out, noBrokerFence) != 1 {
		t.Errorf("the log:\n%s", out)
	}
	r.Settle(t, 0)
}
