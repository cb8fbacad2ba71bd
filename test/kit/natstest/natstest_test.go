package natstest_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// A server keeps its address and data across a restart.
func TestServerRestarts(t *testing.T) {
	s := natstest.Start(t)
	name := s.Stream(t, jetstream.StreamConfig{})
	publish(t, &s.Client, name, "one")
	s.Restart(t)
	publish(t, &s.Client, name, "two")
	got := s.ReadAll(t, name)
	if len(got) != 2 || string(got[0].Data) != "one" || string(got[1].Data) != "two" {
		t.Errorf("the stream has %d messages", len(got))
	}
}

// A stream can be created while the only other one is being deleted.
func TestOnlyStream(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t)
	for range 300 {
		cfg := jetstream.StreamConfig{Name: "only", Storage: jetstream.FileStorage}
		if _, err := js.CreateStream(natstest.Context(t), cfg); err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(natstest.Context(t), cfg.Name); err != nil {
			t.Fatal(err)
		}
	}
}

// A user needs its password, also through a proxy.
func TestUsersAndProxy(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "relay", Password: "secret"}}
	})
	p := faultproxy.Start(t, s.Addrs[0])
	if conn, err := nats.Connect("nats://" + p.Addr()); err == nil {
		conn.Close()
		t.Error("a connection without a user was accepted")
	}
	conn, err := nats.Connect("nats://"+p.Addr(), nats.UserInfo("relay", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A cluster loses no message when the leader of the stream is killed, and elects another one.
func TestCluster(t *testing.T) {
	c := natstest.StartCluster(t)
	name := c.Stream(t, jetstream.StreamConfig{Replicas: 3})
	publish(t, &c.Client, name, "one")
	c.AwaitInSync(t, name)
	leader := c.Leader(t, name)
	leader.Kill(t)
	if next := c.Leader(t, name); next == leader {
		t.Error("the old leader is still reported")
	}
	publish(t, &c.Client, name, "two")
	leader.Restart(t)
	c.AwaitInSync(t, name)
	c.StepDown(t, name)
	if got := c.ReadAll(t, name); len(got) != 2 {
		t.Errorf("the stream has %d messages", len(got))
	}
}

func publish(t *testing.T, c *natstest.Client, subject, data string) {
	t.Helper()
	if _, err := c.JetStream(t).Publish(natstest.Context(t), subject, []byte(data), jetstream.WithRetryAttempts(100)); err != nil {
		t.Fatal(err)
	}
}
