package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// When the fence closes, what is on the wire is still awaited and reported, and nothing else
// leaves: not what has gathered behind it, nor what is sent later.
func TestFence(t *testing.T) {
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
	r := startRig(t, openClient(t, Config{Brokers: k.Addrs}, j.logger()), j, sink.WriterConfig{Fence: func() error {
		if lost.Load() {
			return errLost
		}
		return nil
	}})
	r.send(recordFor(topic, 0, "on the wire"))
	r.producer.Flush()
	<-written
	r.send(recordFor(topic, 0, "gathers behind it"))
	lost.Store(true)
	close(held)
	if err := r.waitRun(); !errors.Is(err, errLost) {
		t.Errorf("Run: %v", err)
	}
	if _, err := r.trySend(recordFor(topic, 0, "too late")); !errors.Is(err, errLost) {
		t.Errorf("Send: %v", err)
	}
	if len(r.acked) != 1 || r.acked[1] != 1 || len(r.failures) > 0 {
		t.Errorf("acknowledged %v, failures %v", r.acked, r.failures)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 1 {
		t.Errorf("the topic has %q", got)
	}
}

// A pausingConn waits in the middle of its first long write.
type pausingConn struct {
	net.Conn
	park func()
}

func (c pausingConn) Write(b []byte) (int, error) {
	if len(b) < writtenAtOnce {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:len(b)/2])
	if err != nil {
		return n, err
	}
	c.park()
	m, err := c.Conn.Write(b[n:])
	return n + m, err
}

// A request in the middle of which the process was stopped is not completed if the fence has closed
// meanwhile: the broker never has all of it.
func TestFenceInTheMiddleOfARequest(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, nil)
	errLost := errors.New("somebody else has it")
	var lost atomic.Bool
	var once sync.Once
	j := new(journal)
	r := startRig(t, openClient(t, Config{
		Brokers: k.Addrs,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return pausingConn{conn, func() { once.Do(func() { lost.Store(true) }) }}, err
		},
	}, j.logger()), j, sink.WriterConfig{Fence: func() error {
		if lost.Load() {
			return errLost
		}
		return nil
	}})
	r.send(recordFor(topic, 0, strings.Repeat("long ", 100_000)))
	r.producer.Flush()
	if err := r.waitRun(); !errors.Is(err, errLost) {
		t.Errorf("Run: %v", err)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 0 || len(r.acked) != 0 {
		t.Errorf("the topic has %d records, acknowledged are %v", len(got), r.acked)
	}
}
