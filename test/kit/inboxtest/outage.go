package inboxtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Outage tests an adapter during a broker outage. The adapter logs Lines.Lost once when the broker becomes unavailable.
// When the broker is available again, it logs Lines.Back and continues.
func Outage(t *testing.T, subject Subject) {
	t.Helper()
	proxy := subject.Proxy(t)
	lost, back := subject.Log.Lost, subject.Log.Back
	r := newSetup(t, subject)
	p := r.processor(t, 0, nil)
	r.startAt(t, proxy.Addr(), p)
	want := r.produce(t, "k")
	wait.For(t, "an effect", func() bool { return p.Stat().Types["A"].Handled == 1 })
	before := len(r.log.String())
	proxy.Refuse()
	proxy.Cut()
	wait.For(t, lost, func() bool { return strings.Contains(r.log.String()[before:], lost) })
	proxy.Accept()
	wait.For(t, back, func() bool { return strings.Contains(r.log.String()[before:], back) })
	want["k"] = append(want["k"], r.produce(t, "k")["k"]...)
	wait.For(t, "2 effects", func() bool { return p.Stat().Types["A"].Handled == 2 })
	check(t, want, r.effects(t))
	if n := strings.Count(r.log.String()[before:], lost); n != 1 {
		t.Errorf("%q is logged %d times", lost, n)
	}
}

// Restart restarts the broker twice while handlers of two members run.
func Restart(t *testing.T, subject Subject) {
	t.Helper()
	r := newSetup(t, subject)
	slow := func(ctx context.Context, _ string) error {
		select {
		case <-time.After(10 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	want := r.produce(t, keys(200)...)
	r.start(t, r.processor(t, 0, slow))
	r.start(t, r.processor(t, 0, slow))
	effects := func() int { return pgtest.QueryRow[int](t, r.db, `SELECT count(*) FROM effects`) }
	for n := range 2 {
		wait.For(t, "the next effects", func() bool { return effects() > 10+20*n })
		r.Restart(t)
	}
	for key, ids := range r.produce(t, keys(50)...) {
		want[key] = append(want[key], ids...)
	}
	wait.For(t, "250 effects", func() bool { return effects() >= 250 })
	check(t, want, r.effects(t))
	r.checkAcknowledged(t, 250)
}
