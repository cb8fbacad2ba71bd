package rig

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// NewOwn is like [New], with a Postgres server of its own, which the test may stop and kill.
func NewOwn(t *testing.T) (*Rig, *pgserver.Server) {
	t.Helper()
	srv := pgtest.Start(t, pgserver.Config{})
	return NewOn(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t)), srv
}

// NewOwnBroker is like [NewOwn], with a real broker of its own, which the test may stop, kill and
// pause; only in a full run.
func NewOwnBroker(t *testing.T) (*Rig, *pgserver.Server, *kafkatest.Server) {
	t.Helper()
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{})
	return NewOn(t, pgtest.DatabaseOn(t, srv), broker.Cluster), srv, broker
}

// ClosedPort returns an address that refuses connections.
func ClosedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// CopyDir copies a directory, preserving owners and modes.
func CopyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil { //nolint:gosec // directories of the test
		t.Fatalf("%v\n%s", err, out)
	}
}

// NewCut returns a rig whose relay connects to Postgres and to Kafka through proxies.
func NewCut(t *testing.T) (r *Rig, fake *kafkatest.FakeCluster, toPostgres, toKafka *faultproxy.Proxy) {
	t.Helper()
	toKafka = faultproxy.Start(t, "")
	r, fake = NewFake(t, kfake.NumBrokers(1), kfake.ListenFn(toKafka.Listen))
	return r, fake, r.Through(t, ""), toKafka
}

// EachServer runs f as a subtest for every available version of Postgres, with a rig on a server of
// its own.
func EachServer(t *testing.T, f func(t *testing.T, r *Rig)) {
	t.Helper()
	pgtest.EachInstall(t, func(t *testing.T, i pgserver.Install) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: i.BinDir})
		f(t, NewOn(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t)))
	})
}

// NewFake is like [New], with a kfake that the test controls.
func NewFake(t *testing.T, opts ...kfake.Opt) (*Rig, *kafkatest.FakeCluster) {
	t.Helper()
	fake := kafkatest.Fake(t, opts...)
	return NewOn(t, pgtest.Database(t), fake.Cluster), fake
}

// Cut closes the connections through p after the given number of bytes, in the middle of a message
// perhaps, or after a second if fewer bytes are sent.
func Cut(p *faultproxy.Proxy, d stream.Direction, bytes int64) {
	select {
	case <-p.CutAfter(d, bytes):
	case <-time.After(time.Second): // fewer bytes have been sent
		p.Cut()
	}
}

// Through makes the relay that is started next connect to Postgres through a proxy with the given
// toxics, in toxiproxy's JSON. More lines of configuration may be given.
func (r *Rig) Through(t *testing.T, more string, toxics ...string) *faultproxy.Proxy {
	t.Helper()
	p := faultproxy.Start(t, r.DB.Server.Addr(), toxics...)
	dsn := strings.Replace(r.DB.DSN, r.DB.Server.Addr(), p.Addr(), 1) + "&connect_timeout=2"
	r.Config = WriteConfig(t, dsn, r.Kafka.Addrs[0], r.Slot, r.Topic, more)
	return p
}
