package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// recoveryLimit is how long a failover may take until everything that was sent before it is confirmed.
const recoveryLimit = 90 * time.Second

// TestClusterLosesNothing: while nodes of a cluster are killed and paused, and the Writer is killed too, a quorum queue
// gets every row, in order per key, and the Writer recovers each time.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	c := rabbittest.StartCluster(t, rabbittest.Config{})
	ch := dialChannel(t, c.Nodes[0].URL("/"))
	declareBoundWith(t, ch, "events", "#", amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	c.AwaitInSync(t, "/", "events")
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait.Patience())
	defer cancel()
	kill := func(s *rabbittest.Server) (heal func() error, err error) {
		return func() error { return s.Restart(ctx) }, s.Kill(ctx)
	}
	pause := func(s *rabbittest.Server) (heal func() error, err error) { return s.Resume, s.Pause() }
	hang := func(s *rabbittest.Server) (heal func() error, err error) {
		// A new channel of RabbitMQ 3.10 waits for the node that led the queue until it counts as down. By default, that takes
		// about a minute.
		return func() error { return errors.Join(s.Kill(ctx), s.Restart(ctx)) }, errors.Join(c.SetTickTime(ctx, 8), s.Pause())
	}
	source := &clusterSource{}
	for _, s := range []struct {
		name   string
		strike func(*rabbittest.Server) (heal func() error, err error)
		struck int // of the nodes in the order: the leader, two others
		used   int // the node to which the Writer is connected
	}{
		{"the leader is killed", kill, 0, 1},
		{"the leader is paused", pause, 0, 1},
		{"the node of the Writer is killed", kill, 1, 1},
		{"the node of the Writer is paused", pause, 1, 1},
		{"another node is killed", kill, 2, 1},
		{"the leader, which is the node of the Writer, is killed", kill, 0, 0},
		{"the leader, which is the node of the Writer, hangs until it is restarted", hang, 0, 0},
	} {
		nodes := fromLeader(t, c)
		cfg := configOf(nodes[s.used], "/")
		for i := range nodes[1:] {
			cfg.Servers = append(cfg.Servers, nodes[(s.used+1+i)%len(nodes)].Addr())
		}
		cfg.Heartbeat = 2 * time.Second
		w := startWriter(t, cfg, sink.WriterConfig{})
		stop := source.start(w.Session)
		w.Await("some acknowledgements", func() bool { return w.Acked() > 300 })
		heal, err := s.strike(nodes[s.struck])
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		source.awaitRecovery(w.Session)
		took := time.Since(start) //nolint:forbidigo // only a full run, which limits it
		if took > recoveryLimit {
			t.Errorf("%s: the Writer has recovered after %s", s.name, took)
		}
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		c.AwaitInSync(t, "/", "events")
		source.awaitRecovery(w.Session)
		stop()
		w.Stop(errors.New("killed"))
		_ = w.Wait()
		n := source.confirm(w.Session)
		t.Logf("%s: recovered after %s; %d rows; %d reconnects, %d retries", s.name, took.Round(time.Millisecond), n, w.Sink.Stat().Reconnects, w.Sink.Stat().Retries)
	}
	w := startWriter(t, configOf(c.Nodes[0], "/"), sink.WriterConfig{})
	rest := source.rows[source.acked:]
	for _, row := range rest {
		if err := w.Writer.Send(ctx, row); err != nil {
			t.Fatal(err)
		}
	}
	w.Drain(len(rest))
	source.check(t, consumeQueue(t, c.Nodes[0].URL("/"), "events", true))
}

// fromLeader returns the nodes, beginning with the leader.
func fromLeader(t *testing.T, c *rabbittest.Cluster) []*rabbittest.Server {
	t.Helper()
	i := slices.Index(c.Nodes, c.Leader(t, "/", "events"))
	return append(slices.Clone(c.Nodes[i:]), c.Nodes[:i]...)
}

// A clusterSource sends the rows of a hundred keys to one Writer after the other. Each continues where not all is confirmed.
type clusterSource struct {
	rows  []*sink.Record // only the goroutine of start uses it until stop
	acked int            // each of rows[:acked] is confirmed
	sent  atomic.Int64   // number of rows that were handed to a Writer
}

// start sends rows until the returned function is called.
func (s *clusterSource) start(to *sinktest.Session) (stop func()) {
	s.sent.Store(int64(s.acked))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := s.acked; ; i++ {
			if i == len(s.rows) {
				s.rows = append(s.rows, &sink.Record{
					Seq: uint64(i + 1), Topic: "events/x", Partition: sink.AnyPartition, Key: fmt.Append(nil, "key ", i%101), Value: fmt.Append(nil, i),
				})
			}
			if to.Writer.Send(ctx, s.rows[i]) != nil {
				return
			}
			if s.sent.Add(1)%20 != 0 {
				continue
			}
			to.Writer.Flush()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// awaitRecovery waits until everything that was sent before is confirmed, and more.
func (s *clusterSource) awaitRecovery(on *sinktest.Session) {
	first, last := s.acked, int(s.sent.Load())+100
	on.Await("recovery", func() bool {
		for first < last && on.IsAcked(uint64(first+1)) {
			first++
		}
		return first == last
	})
}

// confirm confirms the rows before the first one that is not acknowledged, and returns their number.
func (s *clusterSource) confirm(on *sinktest.Session) int {
	before := s.acked
	for s.acked < len(s.rows) && on.IsAcked(s.rows[s.acked].Seq) {
		s.acked++
	}
	return s.acked - before
}

// check fails the test unless each row is among the messages, and the first copies of the rows of each key are in order. It logs
// how many copies there are.
func (s *clusterSource) check(t *testing.T, messages []amqp.Delivery) {
	t.Helper()
	seen := make([]bool, len(s.rows))
	last, before := make(map[string]int), make(map[string]int)
	stored, late := 0, 0
	for _, d := range messages {
		var i int
		if _, err := fmt.Sscan(string(d.Body), &i); err != nil {
			t.Fatal(err)
		}
		key := d.Headers[KeyHeader].(string)
		if p, ok := before[key]; ok && i > p+101 { // the row before was stored, and then a copy of an earlier one
			late++
		}
		before[key] = i
		if seen[i] {
			continue
		}
		seen[i] = true
		stored++
		if i < last[key] {
			t.Errorf("row %d of %s is behind row %d", i, key, last[key])
		}
		last[key] = i
	}
	if stored != len(s.rows) {
		t.Errorf("of %d rows, %d are lost", len(s.rows), len(s.rows)-stored)
	}
	t.Logf("%d rows, %d copies, %d of them late", len(s.rows), len(messages)-len(s.rows), late)
}
