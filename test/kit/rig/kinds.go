package rig

import (
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
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// NewOwn is like [New], but starts a Postgres server for this test, which the test may stop and kill.
func NewOwn(t *testing.T) (*Rig, *pgserver.Server) {
	t.Helper()
	srv := pgtest.Start(t, pgserver.Config{})
	return NewOn(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t)), srv
}

// NewOwnBroker is like [NewOwn], but also starts a real broker for this test, which the test may stop,
// kill and pause. Unless the run is a full one, it skips the test.
func NewOwnBroker(t *testing.T) (*Rig, *pgserver.Server, *kafkatest.Server) {
	t.Helper()
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{})
	return NewOn(t, pgtest.DatabaseOn(t, srv), broker.Cluster), srv, broker
}

// ClosedPort returns an address that refuses connections until the test ends.
func ClosedPort(t *testing.T) string {
	t.Helper()
	port, err := serverproc.ReservePort()
	Must(t, err)
	t.Cleanup(port.Close)
	return port.Addr()
}

// CopyDir copies a directory, preserving owners and modes.
func CopyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil { //nolint:gosec // directories of the test
		t.Fatalf("%v\n%s", err, out)
	}
}

// NewCut returns a rig whose relay connects to Postgres and to Kafka through proxies, so that the test
// can close the connections.
func NewCut(t *testing.T) (r *Rig, fake *kafkatest.FakeCluster, toPostgres, toKafka *faultproxy.Proxy) {
	t.Helper()
	toKafka = faultproxy.Start(t, "")
	r, fake = NewFake(t, kfake.NumBrokers(1), kfake.ListenFn(toKafka.Listen))
	return r, fake, r.Through(t, ""), toKafka
}

// EachServer runs f as a subtest for every available version of Postgres. Each subtest has a server and
// a rig of its own.
func EachServer(t *testing.T, f func(t *testing.T, r *Rig)) {
	t.Helper()
	pgtest.EachInstall(t, func(t *testing.T, i pgserver.Install) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: i.BinDir})
		f(t, NewOn(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t)))
	})
}

// NewFake is like [New], but starts a kfake that the test controls.
func NewFake(t *testing.T, opts ...kfake.Opt) (*Rig, *kafkatest.FakeCluster) {
	t.Helper()
	fake := kafkatest.Fake(t, opts...)
	return NewOn(t, Database(t), fake.Cluster), fake
}

// Cut closes the connections through p after the given number of bytes, which may be in the middle of a
// message. If fewer bytes are sent, it closes them after a second.
func Cut(p *faultproxy.Proxy, d stream.Direction, bytes int64) {
	select {
	case <-p.CutAfter(d, bytes):
	case <-time.After(time.Second): // fewer bytes have been sent
		p.Cut()
	}
}

// Through writes a new configuration file, in which the relay connects to Postgres through a proxy with
// the given toxics, in toxiproxy's JSON. It appends more to the file. The next relay that the rig starts
// uses the file.
func (r *Rig) Through(t *testing.T, more string, toxics ...string) *faultproxy.Proxy {
	t.Helper()
	p := faultproxy.Start(t, r.DB.Server.Addr(), toxics...)
	dsn := strings.Replace(r.DB.DSN, r.DB.Server.Addr(), p.Addr(), 1) + "&connect_timeout=2"
	r.Config = WriteConfig(t, dsn, r.Kafka.Addrs[0], r.Slot, r.Topic, more)
	return p
}
