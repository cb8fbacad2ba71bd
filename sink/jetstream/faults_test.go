package jetstream

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
)

// Lost connections and lost responses make the Writer send rows again. Within the duplicates window the stream has each of
// them once, in order.
func TestOneCopyAcrossLostConnections(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addrs[0])
	stream := s.Stream(t, jetstream.StreamConfig{})
	r := newRig(t, Config{Servers: []string{proxy.Addr()}, RequestTimeout: 300 * time.Millisecond}, sink.WriterConfig{})
	for i := range 20 {
		r.sendRows(stream, 200, 7)
		if i%2 == 0 {
			proxy.Cut()
		}
		r.sendRows(stream, 50, 7)
	}
	r.Drain(int(r.seq))
	if r.Sink.Stat().Retries == 0 {
		t.Error("nothing was sent again")
	}
	r.wantOnce(&s.Client, stream)
}

// A Writer that continues where another one was killed sends rows again that the stream has. The stream drops them.
func TestOneCopyAcrossWriters(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	stream := s.Stream(t, jetstream.StreamConfig{})
	j := sinktest.NewJournal()
	on := openSink(t, config(s), j)
	var rows []*sink.Record
	source := &rig{tb: t}
	for i := range 3000 {
		rows = append(rows, source.row(stream, fmt.Sprint(i%11)))
	}
	acked := 0
	for acked < len(rows) {
		r := &rig{Session: sinktest.StartSession(t, on, j, sink.WriterConfig{}), tb: t}
		n := min(len(rows)-acked, 700)
		for _, row := range rows[acked : acked+n] {
			r.send(row)
		}
		r.Writer.Flush()
		r.Await("some acknowledgements", func() bool { return r.Acked() >= min(n, 300) })
		r.Stop(errors.New("killed"))
		_ = r.Wait()
		for acked < len(rows) && r.IsAcked(rows[acked].Seq) { // the position that it would have stored
			acked++
		}
	}
	for seq, n := range source.copies(&s.Client, stream) {
		if n != 1 {
			t.Errorf("row %d is stored %d times", seq, n)
		}
	}
}

// A row without an id that is unique is stored again if its outcome is unknown, and never overtakes another of its key.
func TestOrderWithoutIDs(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addrs[0])
	stream := s.Stream(t, jetstream.StreamConfig{})
	r := newRig(t, Config{Servers: []string{proxy.Addr()}, RequestTimeout: 300 * time.Millisecond}, sink.WriterConfig{})
	for range 20 {
		for i := range 200 {
			row := r.row(stream, fmt.Sprint(i%7))
			row.Headers = nil
			r.send(row)
		}
		r.Writer.Flush()
		proxy.Cut()
	}
	r.Drain(int(r.seq))
	if times := r.copies(&s.Client, stream); len(times) != int(r.seq) {
		t.Errorf("%d of %d rows are stored", len(times), r.seq)
	}
}

// A network that loses everything without closing connections is detected.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addrs[0])
	stream := s.Stream(t, jetstream.StreamConfig{})
	r := newRig(t, Config{Servers: []string{proxy.Addr()}, RequestTimeout: 200 * time.Millisecond}, sink.WriterConfig{})
	r.sendRows(stream, 50, 5)
	r.AwaitAcked(50)
	proxy.Partition()
	r.sendRows(stream, 50, 5)
	r.Await("a lost connection", func() bool { return r.Sink.Stat().Retries > 0 })
	proxy.Heal()
	r.Drain(100)
	if n := r.Sink.Stat().Reconnects; n == 0 {
		t.Error("the connection was not replaced")
	}
	r.wantOnce(&s.Client, stream)
}

// A server that reads nothing is detected, although a write to it blocks.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addrs[0])
	stream := s.Stream(t, jetstream.StreamConfig{})
	r := newRig(t, Config{Servers: []string{proxy.Addr()}, RequestTimeout: 300 * time.Millisecond, WindowBytes: 64 << 20}, sink.WriterConfig{})
	r.sendRows(stream, 50, 5)
	r.AwaitAcked(50)
	release := proxy.Stall()
	for range 60 { // more than the buffers of the network
		row := r.row(stream, "k")
		row.Key, row.Headers = nil, append(row.Headers, sink.Header{Key: "n", Value: row.Value})
		row.Value = make([]byte, 500_000)
		r.send(row)
	}
	r.Writer.Flush()
	r.Await("a lost connection", func() bool { return r.Sink.Stat().Retries > 0 })
	release()
	r.Drain(110)
	if n := len(s.ReadAll(t, stream)); n != 110 {
		t.Errorf("%d records are stored, want 110", n)
	}
}

// A request that waits for a connection is not written if the fence has closed meanwhile.
func TestFenceAfterReconnect(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	stream := s.Stream(t, jetstream.StreamConfig{})
	errClosed := errors.New("closed")
	var closed atomic.Bool
	r := newRig(t, config(s), sink.WriterConfig{Fence: func() error {
		if closed.Load() {
			return errClosed
		}
		return nil
	}})
	r.sendRows(stream, 10, 10)
	r.AwaitAcked(10)
	s.Shutdown()
	r.sendRows(stream, 10, 10)
	r.Await("a failed connection", func() bool { return r.Sink.Stat().Retries > 0 })
	closed.Store(true)
	s.Restart(t)
	r.Writer.CloseSend()
	r.Writer.Flush()
	if err := r.Wait(); !errors.Is(err, errClosed) {
		t.Errorf("Run: %v", err)
	}
	if n := len(s.ReadAll(t, stream)); n != 10 {
		t.Errorf("%d records are stored, want 10", n)
	}
}
