package sink

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/kafkatest"
)

// When the guard says no, what is on the wire is still awaited and reported, and nothing else
// leaves: not what has gathered behind it, nor what is sent later.
func TestGuard(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, nil)
	written, held := make(chan struct{}), make(chan struct{})
	k.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Control.SleepControl(func() {
			close(written)
			<-held
		})
		return nil, nil, false
	})
	errLost := errors.New("somebody else has it")
	var lost atomic.Bool
	j := new(journal)
	r := prepareRig(t, openClient(t, Config{Brokers: k.Addrs}, j.logger()), j)
	r.producer.SetGuard(func() error {
		if lost.Load() {
			return errLost
		}
		return nil
	})
	r.start()
	r.send(on(topic, 0, "on the wire"))
	r.producer.Kick()
	<-written
	r.send(on(topic, 0, "gathers behind it"))
	lost.Store(true)
	close(held)
	if err := r.end(); !errors.Is(err, errLost) {
		t.Errorf("Run: %v", err)
	}
	if _, err := r.trySend(on(topic, 0, "too late")); !errors.Is(err, errLost) {
		t.Errorf("Send: %v", err)
	}
	if len(r.acked) != 1 || r.acked[1] != 1 || len(r.failures) > 0 {
		t.Errorf("acknowledged %v, failures %v", r.acked, r.failures)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 1 {
		t.Errorf("the topic has %q", got)
	}
}
