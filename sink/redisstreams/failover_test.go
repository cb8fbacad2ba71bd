package redisstreams

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// A load sends the rows of one stream until it is stopped.
type load struct {
	*sinktest.Session

	tb     testing.TB
	stream string
	sent   int
	ended  chan struct{}
	stop   atomic.Bool
}

func startLoad(tb testing.TB, s sink.Sink, stream string) *load {
	tb.Helper()
	l := &load{Session: sinktest.StartSession(tb, s, sinktest.NewJournal(), sink.WriterConfig{}), tb: tb, stream: stream, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for !l.stop.Load() {
			l.sent++
			r := event(stream, l.sent, uint64(1000+l.sent/3), l.sent%3)
			if err := l.Writer.Send(sinktest.Context(tb), &r); err != nil {
				tb.Error(err)
				return
			}
			if l.sent%20 == 0 {
				l.Writer.Flush()
				<-time.After(time.Millisecond)
			}
		}
	}()
	return l
}

// finish stops the load and checks that the stream has every row once and in order. It returns the number of rows.
func (l *load) finish(c redis.UniversalClient) int {
	l.tb.Helper()
	l.stop.Store(true)
	<-l.ended
	l.Drain(l.sent)
	want := make([]string, l.sent)
	for i := range want {
		want[i] = strconv.Itoa(i + 1)
	}
	got := payloads(l.tb, c, l.stream)
	if !slices.Equal(got, want) {
		missing := 0
		for _, payload := range want {
			if !slices.Contains(got, payload) {
				missing++
			}
		}
		l.tb.Errorf("stream %s has %d entries of %d rows, %d rows are missing", l.stream, len(got), l.sent, missing)
	}
	return l.sent
}

// With WAIT, a failover loses no acknowledged row, and what it loses of others is sent again.
func TestFailover(t *testing.T) {
	f := redistest.StartFailover(t, redistest.Config{})
	ctx := sinktest.Context(t)
	s := openSink(t, Config{
		Addrs: []string{f.Sentinel.Addr()}, Sentinel: &Sentinel{Primary: f.Name}, CreateStreams: true,
		Wait: Wait{Replicas: 1, Timeout: 200 * time.Millisecond},
	})
	l := startLoad(t, s, "orders")
	l.Await("some rows", func() bool { return l.Acked() > 200 })
	if err := f.Primary.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	acked := l.Acked()
	f.AwaitPromotion(t)
	if got := len(ids(t, f.Replica.Admin(), "orders")); got < acked {
		t.Errorf("the new primary has %d entries, and %d are acknowledged", got, acked)
	}
	// The new primary has no replica, so WAIT acknowledges nothing until the old one is back.
	f.Rejoin(t)
	l.Await("rows after the failover", func() bool { return l.Acked() > acked+2000 })
	t.Logf("%d rows", l.finish(f.Replica.Admin()))
}

// A record is not acknowledged while too few replicas have it, also if the request was resent over another connection and
// changed nothing. It is appended once.
func TestWait(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	replica := redistest.Start(t, redistest.Config{ReplicaOf: primary})
	(&redistest.Failover{Primary: primary, Replica: replica}).AwaitReplica(t)
	for name, lsn := range map[string]uint64{"streamed rows": 100, "rows without a position": 0} {
		t.Run(name, func(t *testing.T) {
			stream := redistest.UniqueName(t)
			s := openSink(t, Config{Addrs: []string{primary.Addr()}, CreateStreams: true, Wait: Wait{Replicas: 1, Timeout: 100 * time.Millisecond}})
			w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
			write := func(n int) {
				r := event(stream, n, lsn, n)
				if lsn == 0 {
					r.Position = sink.Position{}
				}
				if err := w.Writer.Send(sinktest.Context(t), &r); err != nil {
					t.Fatal(err)
				}
				w.Writer.Flush()
			}
			write(1)
			w.AwaitAcked(1)
			if err := replica.Pause(); err != nil {
				t.Fatal(err)
			}
			write(2)
			w.Await("retries", func() bool { return s.Stat().Retries > 4 })
			// A client without a write of its own must not be acknowledged at once.
			if err := primary.Admin().ClientKillByFilter(sinktest.Context(t), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				t.Fatal(err)
			}
			retries := s.Stat().Retries
			w.Await("more retries", func() bool { return s.Stat().Retries > retries+3 })
			if n := w.Acked(); n != 1 {
				t.Errorf("%d records are acknowledged while the replica is paused", n)
			}
			if reason := s.Stat().LastError; reason == "" {
				t.Error("Stat has no error")
			}
			if err := replica.Resume(); err != nil {
				t.Fatal(err)
			}
			w.AwaitAcked(2)
			w.Drain(2)
			if got := payloads(t, primary.Admin(), stream); !slices.Equal(got, []string{"1", "2"}) {
				t.Errorf("the stream has %s", got)
			}
		})
	}
}

// The first request for a stream that too few replicas confirm is resent, and its records are appended once.
func TestWaitForTheFirstRecord(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	replica := redistest.Start(t, redistest.Config{ReplicaOf: primary})
	(&redistest.Failover{Primary: primary, Replica: replica}).AwaitReplica(t)
	stream := redistest.UniqueName(t)
	s := openSink(t, Config{Addrs: []string{primary.Addr()}, CreateStreams: true, Wait: Wait{Replicas: 1, Timeout: 100 * time.Millisecond}})
	w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	r := event(stream, 1, 0, 1)
	r.Position = sink.Position{}
	if err := w.Writer.Send(sinktest.Context(t), &r); err != nil {
		t.Fatal(err)
	}
	w.Writer.Flush()
	w.Await("retries", func() bool { return s.Stat().Retries > 2 })
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	w.AwaitAcked(1)
	w.Drain(1)
	if got := payloads(t, primary.Admin(), stream); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the stream has %s", got)
	}
}

// Nothing is lost, repeated or reordered while the slot of a stream moves from node to node.
func TestResharding(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Config{})
	s := openSink(t, Config{Addrs: c.Addrs()[:1], Cluster: true, CreateStreams: true})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	var loads []*load
	l := startLoad(t, s, "orders")
	loads = append(loads, l)
	for range 2 {
		for _, to := range c.Nodes {
			if c.Owner(t, l.stream) == to {
				continue
			}
			c.Move(t, l.stream, to, func(int) {
				acked := l.Acked()
				l.Await("rows during the move", func() bool { return l.Acked() > acked+100 })
			})
		}
	}
	t.Logf("%d rows, %d retries", loads[0].finish(client), s.Stat().Retries)
}

// The streams of other nodes do not wait for a node that is down.
func TestNodeDown(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Config{Settings: map[string]string{"cluster-require-full-coverage": "no", "appendonly": "yes", "appendfsync": "always"}})
	s := openSink(t, Config{Addrs: c.Addrs(), Cluster: true, CreateStreams: true})
	streams := make(map[*redistest.Server]string)
	for i := 0; len(streams) < 3; i++ {
		stream := fmt.Sprint("orders-", i)
		streams[c.Owner(t, stream)] = stream
	}
	w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
	n, ctx := 0, sinktest.Context(t)
	write := func(stream string) {
		n++
		r := event(stream, n, uint64(n), 0)
		if err := w.Writer.Send(ctx, &r); err != nil {
			t.Fatal(err)
		}
		w.Writer.Flush()
	}
	for _, stream := range streams {
		write(stream)
	}
	w.AwaitAcked(n)
	down := c.Nodes[0]
	if err := down.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	write(streams[down])
	for range 20 {
		write(streams[c.Nodes[1]])
		write(streams[c.Nodes[2]])
		w.AwaitAcked(n - 1)
	}
	if err := down.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	w.AwaitAcked(n)
	w.Drain(n)
	if got := len(ids(t, down.Admin(), streams[down])); got != 2 {
		t.Errorf("the node that was down has %d entries, want 2", got)
	}
}
