package inboxredis_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxredis"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// durable makes a server keep everything that it has acknowledged.
func durable() redistest.Config {
	return redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}}
}

func TestContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{})
	inboxtest.Contract(t, subject(t, s, s.Addr()))
}

// All keys of a session are in one hash slot.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Config{})
	s := subject(t, nil, c.Addrs()...)
	s.Proxy = nil
	inboxtest.Contract(t, s)
}

func TestOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{})
	inboxtest.Outage(t, subject(t, s, s.Addr()))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, durable())
	inboxtest.Restart(t, subject(t, s, s.Addr()))
}

// BenchmarkLatency uses the default settings.
func BenchmarkLatency(b *testing.B) {
	s := redistest.Start(b, durable())
	inboxtest.Latency(b, subject(b, s, s.Addr()))
}

// subject returns the Subject of a server, or of a cluster. The topic is a stream.
func subject(tb testing.TB, server *redistest.Server, addrs ...string) inboxtest.Subject {
	tb.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	tb.Cleanup(func() { client.Close() })
	return inboxtest.Subject{
		Create: func(tb testing.TB, topic string) {
			tb.Helper()
			if err := client.XGroupCreateMkStream(tb.Context(), topic, "other", "0").Err(); err != nil {
				tb.Fatal(err)
			}
		},
		Publish: func(tb testing.TB, topic string, messages ...inboxtest.Message) {
			tb.Helper()
			for _, m := range messages {
				publish(tb, client, topic, m)
			}
		},
		Run: func(ctx context.Context, addr, group, topic string, p *inbox.Processor) error {
			at := addrs
			if addr != "" {
				at = []string{addr}
			}
			client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: at})
			defer client.Close()
			return inboxredis.Run(ctx, p, inboxredis.Config{
				Client: client, Group: group, Streams: []string{topic}, LockTTL: 2 * time.Second, Window: 40,
			})
		},
		Acknowledged: func(tb testing.TB, group, topic string) int {
			tb.Helper()
			groups, err := client.XInfoGroups(tb.Context(), topic).Result()
			if err != nil {
				tb.Fatal(err)
			}
			for _, g := range groups {
				if g.Name == group {
					return int(g.EntriesRead - g.Pending)
				}
			}
			return 0
		},
		Proxy: func(tb testing.TB) *faultproxy.Proxy { tb.Helper(); return faultproxy.Start(tb, addrs[0]) },
		Restart: func(tb testing.TB) {
			tb.Helper()
			if err := server.Kill(tb.Context()); err != nil {
				tb.Fatal(err)
			}
			if err := server.Restart(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		},
		Log: inboxtest.Lines{
			Joining: "inbox: joining the consumer group", Assigned: "inbox: stream assigned to this instance",
			Missing: "inbox: stream does not exist, waiting for it",
			Lost:    "inbox: broker unavailable, retrying", Back: "inbox: broker available again",
		},
	}
}

// publish writes an entry as the relay does.
func publish(tb testing.TB, client redis.UniversalClient, stream string, m inboxtest.Message) {
	tb.Helper()
	values := []string{"timestamp", strconv.FormatInt(time.Now().UnixMilli(), 10), "payload", m.Payload}
	for _, field := range [][2]string{{"key", m.Key}, {"id", m.ID}, {"eventType", m.Type}} {
		if field[1] != "" {
			values = append(values, field[0], field[1])
		}
	}
	if err := client.XAdd(tb.Context(), &redis.XAddArgs{Stream: stream, NoMkStream: true, Values: values}).Err(); err != nil {
		tb.Fatal(err)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	streams := []string{"s"}
	for want, cfg := range map[string]inboxredis.Config{
		"inboxredis: Config.Client is nil":           {Group: "g", Streams: streams},
		"inboxredis: Config.Group is empty":          {Client: client, Streams: streams},
		"inboxredis: Config.Streams is empty":        {Client: client, Group: "g"},
		"inboxredis: a number of Config is negative": {Client: client, Group: "g", Streams: streams, Window: -1},
	} {
		if err := inboxredis.Run(t.Context(), p, cfg); err == nil || err.Error() != want {
			t.Errorf("Run = %v, want %s", err, want)
		}
	}
}

// The rights of the documentation are enough, and without them Run returns an error.
func TestRights(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{Users: map[string]string{
		"service": ">secret ~orders ~{orders}:* +xgroup|create +xinfo|groups +xread +xreadgroup +xautoclaim +xack +set +get +del +pexpire +eval +evalsha",
		"nobody":  ">secret ~orders +xread",
	}})
	publish := func(n int) {
		for range n {
			err := s.Admin().XAdd(t.Context(), &redis.XAddArgs{Stream: "orders", Values: []string{
				"payload", "{}", "key", "k", "id", uuid.NewString(), "eventType", "A",
			}}).Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(3)
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	run := func(ctx context.Context, user string) error {
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: user, Password: "secret"})
		defer client.Close()
		return inboxredis.Run(ctx, p, inboxredis.Config{Client: client, Group: "g", Streams: []string{"orders"}})
	}
	if err := run(t.Context(), "nobody"); err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("Run without rights = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, "service") }()
	wait.For(t, "3 effects", func() bool { return p.Stat().Types["A"].Handled == 3 })
	publish(1)
	wait.For(t, "4 effects", func() bool { return p.Stat().Types["A"].Handled == 4 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if n, err := s.Admin().Exists(t.Context(), "{orders}:g:inbox_lock").Result(); err != nil || n != 0 {
		t.Errorf("%d locks after Run, %v", n, err)
	}
}
