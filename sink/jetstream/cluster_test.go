package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// While nodes of a cluster are killed, paused and restarted, leaders step down, and the Writer is killed too, a stream with
// three replicas gets every row exactly once, in order.
func TestClusterKeepsOneCopy(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	stream := c.Stream(t, jetstream.StreamConfig{Replicas: 3, Storage: jetstream.FileStorage})
	j := sinktest.NewJournal()
	on := openSink(t, Config{Servers: c.Addrs, RequestTimeout: time.Second}, j)
	store, err := sink.OpenPositions(sinktest.Context(t), on, natstest.UniqueName(t), "relay")
	if err != nil {
		t.Fatal(err)
	}
	source := &rig{tb: t}
	var rows []*sink.Record
	acked := 0
	rng := rand.New(rand.NewPCG(1, 2))
	strikes := []struct {
		name   string
		strike func() (heal func())
	}{
		{"the leader is killed", func() func() {
			n := c.Leader(t, stream)
			n.Kill(t)
			return func() { n.Restart(t) }
		}},
		{"a node is killed", func() func() {
			n := c.Nodes[rng.IntN(len(c.Nodes))]
			n.Kill(t)
			return func() { n.Restart(t) }
		}},
		{"a node is paused", func() func() {
			n := c.Nodes[rng.IntN(len(c.Nodes))]
			n.Pause(t)
			return func() { n.Resume(t) }
		}},
		{"the leader steps down", func() func() { c.StepDown(t, stream); return func() {} }},
		{"only the writer is killed", func() func() { return func() {} }},
	}
	for i := range 2 * len(strikes) {
		s := strikes[i%len(strikes)]
		r := &rig{Session: sinktest.StartSession(t, on, j, sink.WriterConfig{}), tb: t}
		for len(rows) < acked+4000 {
			rows = append(rows, source.row(stream, fmt.Sprint(len(rows)%101)))
		}
		sent := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(sent)
			for _, row := range rows[acked:] {
				if r.Writer.Send(ctx, row) != nil {
					return
				}
				if row.Seq%50 == 0 {
					r.Writer.Flush()
					<-time.After(time.Millisecond)
				}
			}
			r.Writer.Flush()
		}()
		r.Await("some acknowledgements", func() bool { return r.Acked() > 300 })
		heal := s.strike()
		before := r.Acked()
		start := time.Now()
		r.Await("progress", func() bool { return r.Acked() > before+1000 || r.Acked() >= 3900 })
		took := time.Since(start) //nolint:forbidigo // only a full run, which logs it
		cancel()
		<-sent
		r.Stop(errors.New("killed"))
		_ = r.Wait()
		heal()
		n := acked
		for acked < len(rows) && r.IsAcked(rows[acked].Seq) {
			acked++
		}
		position := fmt.Append(nil, acked)
		if err := store.Post(sinktest.Context(t), sink.PositionKey, position); err != nil {
			t.Fatalf("store a position: %v", err)
		}
		if values, err := store.Read(sinktest.Context(t)); err != nil || len(values) != 1 || string(values[0].Value) != string(position) {
			t.Errorf("the position is %v, %v, want %s", values, err, position)
		}
		t.Logf("%s: %d rows, progress after %s", s.name, acked-n, took)
		c.AwaitInSync(t, stream)
	}
	resent := on.Stat().Retries
	r := &rig{Session: sinktest.StartSession(t, on, j, sink.WriterConfig{}), tb: t, seq: uint64(len(rows))}
	for _, row := range rows[acked:] {
		r.send(row)
	}
	r.Drain(len(rows) - acked)
	times := source.copies(&c.Client, stream)
	lost, several := 0, 0
	for _, row := range rows {
		switch n := times[row.Seq]; {
		case n == 0:
			lost++
		case n > 1:
			several++
		}
	}
	t.Logf("%d rows, %d requests were sent again: %d rows lost, %d stored several times", len(rows), resent, lost, several)
	if lost > 0 || several > 0 {
		t.Errorf("of %d rows, %d are lost and %d are stored several times", len(rows), lost, several)
	}
}
