package redisstreams

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The rights that docs/redis-streams.md names.
const (
	leastRights   = ">s3cret resetkeys resetchannels -@all ~outbox.* ~outbox-cdc.positions +ping +eval +evalsha +xadd +xrange +xinfo|stream +xlen +exists +hget +hset +hdel +hgetall"
	waitRights    = leastRights + " +wait +xsetid"
	auditRights   = ">s3cret resetkeys resetchannels -@all ~outbox.* ~outbox-cdc.positions +xinfo|stream +xrange +hgetall"
	clusterRights = leastRights + " +cluster|slots +cluster|shards +asking +command"
)

// useAll writes, resends, reads and stores a position.
func useAll(t *testing.T, cfg Config) *client {
	t.Helper()
	cfg.CreateStreams, cfg.Credentials = true, relayLogin
	s := openSink(t, cfg)
	ctx := sinktest.Context(t)
	if err := s.CheckDestinations(ctx, "outbox.orders"); err != nil {
		t.Errorf("CheckDestinations: %v", err)
	}
	send(t, s, event("outbox.orders", 1, 100, 0), event("outbox.orders", 2, 0, 0))
	send(t, s, event("outbox.orders", 1, 100, 0))
	store, err := sink.OpenPositions(ctx, s, "outbox-cdc.positions", "a")
	if err != nil {
		t.Fatalf("OpenPositions: %v", err)
	}
	if err := store.Post(ctx, sink.PositionKey, []byte("x")); err != nil {
		t.Errorf("Write: %v", err)
	}
	if values, err := store.Read(ctx); err != nil || len(values) != 1 || string(values[0].Value) != "x" {
		t.Errorf("Read: %v, %v", values, err)
	}
	for _, f := range sinktest.Inspect(ctx, t, cfg, sink.Use{Destinations: []sink.Destination{{Name: "outbox.orders"}}, Positions: "outbox-cdc.positions"}) {
		if f.State == sink.Failed {
			t.Errorf("check: %+v", f)
		}
	}
	findings := sinktest.Inspect(ctx, t, cfg, sink.Use{Positions: "other"})
	if f := findings[len(findings)-1]; f.State != sink.Failed || !strings.Contains(f.Fix, "'~other'") {
		t.Errorf("check of a hash that the user may not use: %+v", f)
	}
	deadLetters, err := cfg.OpenDeadLetters(ctx, "outbox.orders", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("OpenDeadLetters: %v", err)
	}
	defer deadLetters.Close()
	ranges, err := deadLetters.OffsetRanges(ctx)
	if err != nil {
		t.Fatalf("Spans: %v", err)
	}
	n := 0
	if err := deadLetters.Read(ctx, ranges[0], func(*sink.StoredRecord) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("%d entries, want 2: %v", n, err)
	}
	return s
}

// readAll reads what useAll has written, as an audit does.
func readAll(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Credentials = func(context.Context) (user, password string, err error) { return "auditor", "s3cret", nil }
	ctx := sinktest.Context(t)
	opened, err := cfg.OpenReader(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	ranges, err := opened.OffsetRanges(ctx, "outbox.orders")
	if err != nil || len(ranges["outbox.orders"]) != 1 {
		t.Fatalf("Spans: %v, %v", ranges, err)
	}
	n := 0
	if err := opened.Read(ctx, "outbox.orders", ranges["outbox.orders"][0], func(*sink.StoredRecord) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("%d entries, want 2: %v", n, err)
	}
	values, err := opened.(sink.PositionReader).ReadPositions(ctx, "outbox-cdc.positions", "a")
	if err != nil || len(values) != 1 || string(values[0].Value) != "x" {
		t.Errorf("ReadPositions: %v, %v", values, err)
	}
}

// The documented rights suffice.
func TestLeastRights(t *testing.T) {
	t.Run("a server", func(t *testing.T) {
		server := redistest.Start(t, redistest.Config{Users: map[string]string{"relay": leastRights, "auditor": auditRights}})
		cfg := Config{Addrs: []string{server.Addr()}}
		useAll(t, cfg)
		readAll(t, cfg)
	})
	t.Run("replicas", func(t *testing.T) {
		f := redistest.StartFailover(t, redistest.Config{Users: map[string]string{"relay": waitRights}})
		useAll(t, Config{Addrs: []string{f.Sentinel.Addr()}, Sentinel: &Sentinel{Primary: f.Name}, Wait: Wait{Replicas: 1}})
	})
	t.Run("a cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, redistest.Config{Users: map[string]string{"relay": clusterRights}})
		s := useAll(t, Config{Addrs: c.Addrs()[:1], Cluster: true})
		to := c.Nodes[0]
		if c.Owner(t, "outbox.orders") == to {
			to = c.Nodes[1]
		}
		c.Move(t, "outbox.orders", to, func(step int) { send(t, s, event("outbox.orders", 10+step, uint64(200+step), 0)) })
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		defer client.Close()
		if got := payloads(t, client, "outbox.orders"); !slices.Equal(got, []string{"1", "2", "11", "12"}) {
			t.Errorf("the stream has %s", got)
		}
	})
}

// A relay that runs and loses a right waits until it has the right again, and a first contact without it ends.
func TestOwnerWaitsForRights(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Users: map[string]string{"relay": leastRights}})
	ctx := sinktest.Context(t)
	s := openSink(t, Config{Addrs: []string{server.Addr()}, Credentials: relayLogin})
	store, err := sink.OpenPositions(ctx, s, "outbox-cdc.positions", "a")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := store.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	grant := func(rule string) {
		t.Helper()
		if err := server.Admin().Do(ctx, "ACL", "SETUSER", "relay", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	grant("-hset")
	if _, err := sink.OpenPositions(ctx, s, "outbox-cdc.positions", "b"); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("OpenPositions: %v", err)
	}
	written := make(chan error, 1)
	go func() { written <- owner.Write(ctx, sink.PositionKey, []byte("x")) }()
	wait.For(t, "a rejected Write", func() bool { return s.Stat().LastError != "" || len(written) > 0 })
	if st := s.Stat(); !strings.HasPrefix(st.StallReason, "hash outbox-cdc.positions: ") || st.StallAdvice != accessAdvice {
		t.Errorf("stall %q, %q", st.StallReason, st.StallAdvice)
	}
	grant("+hset")
	if err := wait.Receive(t, "the Write", written); err != nil {
		t.Errorf("Write: %v", err)
	}
	if values, err := store.Read(ctx); err != nil || len(values) != 1 || string(values[0].Value) != "x" {
		t.Errorf("Read: %v, %v", values, err)
	}
}

// The check names the commands that the user may not run, and the command that grants them. It stores nothing.
func TestInspectRights(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Users: map[string]string{
		"relay": ">s3cret resetkeys resetchannels -@all ~outbox.* ~outbox-cdc.positions +ping +eval +evalsha +xrange +xlen +exists +hget +hgetall",
	}})
	ctx := sinktest.Context(t)
	cfg := Config{Addrs: []string{server.Addr()}, Credentials: relayLogin, CreateStreams: true, Wait: Wait{Replicas: 1}}
	use := sink.Use{Destinations: []sink.Destination{{Name: "outbox.orders"}, {Name: "other"}}, Positions: "outbox-cdc.positions"}
	fixes := make(map[string]string)
	for _, f := range sinktest.Inspect(ctx, t, cfg, use) {
		if f.State != sink.Met {
			fixes[f.Condition+" "+f.Object] = f.Fix
		}
	}
	want := map[string]string{
		"rights outbox.orders":                "redis-cli ACL SETUSER relay +xadd '+xinfo|stream' +wait +xsetid",
		"rights other":                        "redis-cli ACL SETUSER relay '~other' +xadd '+xinfo|stream' +wait +xsetid",
		"position store outbox-cdc.positions": "redis-cli ACL SETUSER relay +hset +hdel",
		"server ":                             "redis-cli ACL SETUSER relay +info '+config|get'",
	}
	if diff := cmp.Diff(want, fixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if keys, err := server.Admin().Keys(ctx, "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// While the server is down, the memory of the Writer does not grow, and Send blocks. Nothing is lost when it comes back.
func TestOutage(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
	ctx := sinktest.Context(t)
	s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true, WindowBytes: 1 << 20})
	w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
	n := 0
	next := func(ctx context.Context) error {
		r := event("outbox.orders", n+1, uint64(100+n), 0)
		r.Headers = append(r.Headers, sink.Header{Key: "padding", Value: make([]byte, 1000)})
		err := w.Writer.Send(ctx, &r)
		if err == nil {
			n++
		}
		return err
	}
	for range 5000 {
		if err := next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.AwaitAcked(n)
	if err := server.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the window is full")
	fill := func() {
		t.Helper()
		limited, cancel := context.WithTimeoutCause(ctx, 300*time.Millisecond, full)
		defer cancel()
		for {
			if err := next(limited); err != nil {
				if !errors.Is(err, full) {
					t.Fatal(err)
				}
				return
			}
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	fill()
	before := heap()
	for range 10 {
		fill()
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grows from %d to %d bytes while the server is down", before, after)
	}
	if st := s.Stat(); st.StalledSince.IsZero() || st.InFlightBytes > 1<<20 {
		t.Errorf("%+v", st)
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	w.Drain(n)
	want := make([]string, n)
	for i := range want {
		want[i] = strconv.Itoa(i + 1)
	}
	if got := payloads(t, server.Admin(), "outbox.orders"); !slices.Equal(got, want) {
		t.Errorf("the stream has %d entries, want %d", len(got), n)
	}
	if s.Stat().Reconnects == 0 {
		t.Error("Stat has no reconnect")
	}
}
