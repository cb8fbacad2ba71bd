package kafka

import (
	"log/slog"
	"net"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// A lab is a kfake cluster and everything around it in a bubble of fake time, on a network
// in memory.
type lab struct {
	*testing.T
	net   *kfake.VirtualNetwork
	fake  *kfake.Cluster
	addrs []string
}

// inLab runs f in a lab with so many brokers, on which every wait takes no time.
func inLab(t *testing.T, brokers int, f func(l *lab), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, net: new(kfake.VirtualNetwork)}
		var ports []int
		for i := range brokers {
			ports = append(ports, 9092+i)
			l.addrs = append(l.addrs, net.JoinHostPort("localhost", strconv.Itoa(9092+i)))
		}
		opts = append(opts, kfake.Ports(ports...), kfake.ListenFn(l.net.Listen))
		l.fake = kafkatest.Fake(t, opts...).Control
		f(l)
	})
}

// client opens a client in the lab.
func (l *lab) client(cfg Config, log *slog.Logger) *client {
	l.Helper()
	if cfg.Brokers == nil {
		cfg.Brokers = l.addrs
	}
	c, err := open(l.Context(), cfg, log, l.net.DialContext)
	if err != nil {
		l.Fatalf("open: %v", err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return c
}

// rig starts a producer in the lab.
func (l *lab) rig(cfg Config) *rig {
	l.Helper()
	j := new(journal)
	return startRig(l, l.client(cfg, j.logger()), j, sink.WriterConfig{})
}
