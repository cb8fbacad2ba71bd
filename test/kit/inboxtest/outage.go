package inboxtest

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// Outage tests an adapter during a broker outage. The adapter logs the message lost once when the broker
// becomes unavailable. When the broker is available again, it logs the message back and continues.
func Outage(t *testing.T, run Run, lost, back string) {
	t.Helper()
	proxy := faultproxy.Start(t, "")
	r := newSetup(t, kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen)).Cluster, run)
	p := r.processor(t, 0, nil)
	r.start(t, p)
	want := r.produce(t, "k")
	Await(t, "an effect", func() bool { return p.Stat().Types["A"].Handled == 1 })
	before := len(r.log.String())
	proxy.Refuse()
	proxy.Cut()
	Await(t, lost, func() bool { return strings.Contains(r.log.String()[before:], lost) })
	proxy.Accept()
	Await(t, back, func() bool { return strings.Contains(r.log.String()[before:], back) })
	want["k"] = append(want["k"], r.produce(t, "k")["k"]...)
	Await(t, "2 effects", func() bool { return p.Stat().Types["A"].Handled == 2 })
	check(t, want, r.effects(t))
	if n := strings.Count(r.log.String()[before:], lost); n != 1 {
		t.Errorf("%q is logged %d times", lost, n)
	}
}
