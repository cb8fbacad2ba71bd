package kafka

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// Each request that is answered is told with what it took, and each connection that takes the
// place of a broken one is counted; the first one of a sender is none.
func TestAnswersAndReconnectsAreCounted(t *testing.T) {
	var mu sync.Mutex
	var took []time.Duration
	var conns []net.Conn
	j := new(journal)
	r := startRig(t, openClient(t, Config{
		Brokers: kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")).Addrs,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			return conn, err
		},
	}, j.logger()), j, sink.WriterConfig{Answered: func(d time.Duration, _ string) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, d)
	}})
	const rounds = 4
	for i := range rounds {
		r.send(recordFor("orders", 0, "value"))
		r.waitAcked(i + 1)
		if n := r.client.Stat().Reconnects; n != int64(i) {
			t.Errorf("%d reconnects after %d broken connections", n, i)
		}
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
	}
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	if len(took) != rounds || min(took[0], took[1], took[2], took[3]) <= 0 || took[0] > testTimeout {
		t.Errorf("answers after %s, want %d", took, rounds)
	}
}
