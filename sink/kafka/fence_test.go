package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// errGate is the error of a closed gate. It wraps an error that has another meaning when it comes from a broker.
var errGate = fmt.Errorf("somebody else has it: %w", sink.ErrAccess)

// A gate is a fence that a test opens and closes.
type gate struct {
	closed  atomic.Bool
	asked   atomic.Int64 // number of calls of check
	closeAt atomic.Int64 // the gate closes after so many calls of check; 0: never
}

func (g *gate) check() error {
	if n := g.asked.Add(1); n == g.closeAt.Load() {
		g.closed.Store(true)
	}
	if g.closed.Load() {
		return errGate
	}
	return nil
}

// A meteredNetwork counts connections. It can pause in the middle of a long write.
type meteredNetwork struct {
	dial  dialFunc
	dials atomic.Int64
	pause func() // called once, in the middle of the first long write; nil: never
	once  sync.Once
}

func (m *meteredNetwork) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	m.dials.Add(1)
	conn, err := m.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return pausingConn{conn, m}, nil
}

type pausingConn struct {
	net.Conn
	network *meteredNetwork
}

func (c pausingConn) Write(b []byte) (int, error) {
	if len(b) < writtenAtOnce || c.network.pause == nil {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:len(b)/2])
	if err != nil {
		return n, err
	}
	c.network.once.Do(c.network.pause)
	m, err := c.Conn.Write(b[n:])
	return n + m, err
}

// gatedRig starts a producer with a fence, over TCP connections that pause.
func gatedRig(t *testing.T, addrs []string, pause func()) (*rig, *gate, *meteredNetwork) {
	t.Helper()
	g, m, j := new(gate), &meteredNetwork{dial: new(net.Dialer).DialContext, pause: pause}, sinktest.NewJournal()
	c := openClient(t, Config{Brokers: addrs, Dial: m.connect}, j.Logger())
	return startRig(t, c, j, sink.WriterConfig{Fence: g.check}), g, m
}

// awaitRequests blocks until n requests are in flight.
func (r *rig) awaitRequests(n int) {
	r.tb.Helper()
	r.Await(fmt.Sprintf("%d requests on the wire", n), func() bool {
		r.producer.mu.Lock()
		defer r.producer.mu.Unlock()
		return r.producer.requestsInFlight == n
	})
}

// awaitRefusal calls Flush and blocks until the producer has checked the fence because of that.
func (r *rig) awaitRefusal(g *gate) {
	r.tb.Helper()
	asked := g.asked.Load()
	r.producer.Flush()
	r.Await("a look at the fence", func() bool { return g.asked.Load() > asked })
}

// TestHalfWrittenRequestIsCompletedLater: the fence closes while the producer writes a request, and the broker
// never receives all of it. When the fence is open again, the producer sends the same records over a new
// connection, once and in order. Until then it sends nothing.
func TestHalfWrittenRequestIsCompletedLater(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, nil)
	var g *gate
	paused := make(chan struct{})
	r, g, m := gatedRig(t, k.Addrs, func() {
		g.closed.Store(true)
		close(paused)
	})
	r.send(recordFor(topic, 0, "before"))
	r.AwaitAcked(1)
	want := []string{"before"}
	dials := m.dials.Load()
	for i := range 5 {
		want = append(want, fmt.Sprint(i, strings.Repeat(" long", 80_000)))
		r.send(recordFor(topic, 0, want[i+1]))
	}
	r.producer.Flush()
	<-paused
	r.awaitRequests(0)
	for i := range 3 {
		want = append(want, fmt.Sprint("behind ", i))
		r.send(recordFor(topic, 0, want[len(want)-1]))
		r.awaitRefusal(g)
	}
	if got := values(k.ReadAll(t, topic), 0); len(got) != 1 || r.Acked() != 1 {
		t.Errorf("the topic has %d records, %d are acknowledged", len(got), r.Acked())
	}
	if n := m.dials.Load() - dials; n != 0 || r.Ended() {
		t.Errorf("%d connections were made while the fence was closed", n)
	}
	if s := r.client.Stat(); s.InFlightRecords != 8 || s.Retries != 0 || s.LastError != "" || !s.StalledSince.IsZero() {
		t.Errorf("Stat: %+v", s)
	}
	g.closed.Store(false)
	r.drainFlushed()
	if diff := cmp.Diff(want, values(k.ReadAll(t, topic), 0)); diff != "" {
		t.Errorf("the topic (-want +got):\n%.1000s", diff)
	}
	if n, s := m.dials.Load()-dials, r.client.Stat(); n != 1 || s.DuplicatesPossible != 0 || s.Retries != 0 {
		t.Errorf("%d connections were made, Stat: %+v", n, s)
	}
	if s := r.Journal.String(); s != "" {
		t.Errorf("log: %s", s)
	}
}

// drainFlushed is drain for a fence that has opened again. It waits for all records, which shows that Flush sends
// them before CloseSend is called.
func (r *rig) drainFlushed() {
	r.tb.Helper()
	r.AwaitAcked(int(r.seq))
	r.drain()
}

// TestNothingHappensWhileTheFenceIsClosed: while the fence is closed, the producer opens no connection, sends no
// request, retries nothing, and does not keep checking the fence.
func TestNothingHappensWhileTheFenceIsClosed(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		g, m, j := new(gate), &meteredNetwork{dial: l.net.DialContext}, sinktest.NewJournal()
		c, err := open(l.Context(), Config{Brokers: l.addrs}, j.Logger(), m.connect)
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _ = c.Close() })
		r := startRig(l, c, j, sink.WriterConfig{Fence: g.check})
		for p := range int32(2) {
			r.send(recordFor("t", p, "0"))
		}
		r.AwaitAcked(2)
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.NotEnoughReplicasAfterAppend})
		produced := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
		r.send(recordFor("t", 1, "1"))
		r.producer.Flush()
		synctest.Wait()
		g.closed.Store(true) // during the back-off
		for range 300 {
			r.send(recordFor("t", 0, "x"))
		}
		bubble.Sleep(time.Minute)
		dials, asked, sent := m.dials.Load(), g.asked.Load(), produced.Hits()
		bubble.Sleep(time.Hour)
		if m.dials.Load() != dials || g.asked.Load() != asked || produced.Hits() != sent {
			l.Errorf("%d connections, %d checks of the fence, %d requests in an hour",
				m.dials.Load()-dials, g.asked.Load()-asked, produced.Hits()-sent)
		}
		if r.Acked() != 2 || r.Ended() {
			l.Errorf("%d records acknowledged", r.Acked())
		}
		g.closed.Store(false)
		r.drainFlushed()
		if n := c.Stat().Topics["t"].Records; n != 303 {
			l.Errorf("%d records", n)
		}
		var got []string
		for _, rec := range l.readRecords("t", 303) {
			if rec.Partition == 1 {
				got = append(got, string(rec.Value))
			}
		}
		if !slices.Equal(got, []string{"0", "1"}) {
			l.Errorf("partition 1 has %q", got)
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestCloseSendBehindAClosedFence: Run returns the fence's error as the cause. A record counts as sent only if the
// producer completed a request with it.
func TestCloseSendBehindAClosedFence(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(l *lab, r *rig, g *gate)
		sent      int
	}{
		"nothing was sent": {func(_ *lab, r *rig, g *gate) {
			g.closed.Store(true)
			r.send(recordFor("t", 0, "x"))
		}, 0},
		"a request is not completed": {func(_ *lab, r *rig, g *gate) {
			g.closeAt.Store(g.asked.Load() + 3) // open before and after the producer selects its batches
			r.send(recordFor("t", 0, "x"))
		}, 0},
		"an answer was lost": {func(l *lab, r *rig, g *gate) {
			l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, When: func(kmsg.Request) bool {
				g.closed.Store(true)
				return true
			}})
			r.send(recordFor("t", 0, "x"))
		}, 1},
		"the topic is missing": {func(_ *lab, r *rig, g *gate) {
			g.closed.Store(true)
			r.send(recordFor("missing", 0, "x"))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				g, j := new(gate), sinktest.NewJournal()
				r := startRig(l, l.client(Config{}, j.Logger()), j, sink.WriterConfig{Fence: g.check})
				r.send(recordFor("t", 0, "before"))
				r.AwaitAcked(1)
				synctest.Wait()
				tc.meanwhile(l, r, g)
				r.producer.Flush()
				synctest.Wait()
				if r.Ended() || !g.closed.Load() {
					l.Fatal("the fence is open, or Run has returned")
				}
				r.producer.CloseSend()
				e, ok := errors.AsType[*sink.UndeliveredError](r.Wait())
				if !ok || e.Records != 1 || e.Sent != tc.sent || e.Cause != errGate { //nolint:errorlint // nothing may be wrapped around it
					l.Errorf("Run: %+v", r.Wait())
				}
				if r.Acked() != 1 {
					l.Errorf("%d records acknowledged", r.Acked())
				}
				if n := r.client.pool.inUse(); n != 0 {
					l.Errorf("%d bytes were not released", n)
				}
			}, kfake.SeedTopics(1, "t"))
		})
	}
}

// TestFenceThatClosesAfterCloseSend: Flush detects that the fence has closed, and Run returns.
func TestFenceThatClosesAfterCloseSend(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		g, j := new(gate), sinktest.NewJournal()
		r := startRig(l, l.client(Config{}, j.Logger()), j, sink.WriterConfig{Fence: g.check})
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		r.send(recordFor("t", 0, "x"))
		r.producer.CloseSend()
		bubble.Sleep(time.Minute)
		g.closed.Store(true)
		r.producer.Flush()
		if e, ok := errors.AsType[*sink.UndeliveredError](r.Wait()); !ok || e.Sent != 1 || !errors.Is(e, errGate) {
			l.Errorf("Run: %v", r.Wait())
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestFenceThatOpensAsRunEnds: the fence is closed, so Run starts to return. The fence opens before Run has
// returned. Run must not return nil, since some records are undelivered.
func TestFenceThatOpensAsRunEnds(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		var refusals atomic.Int64
		refusals.Store(1 << 30)
		j := sinktest.NewJournal()
		r := startRig(l, l.client(Config{}, j.Logger()), j, sink.WriterConfig{Fence: func() error {
			if refusals.Add(-1) >= 0 {
				return errGate
			}
			return nil
		}})
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		synctest.Wait()
		refusals.Store(1) // for CloseSend
		r.producer.CloseSend()
		err := r.Wait()
		if e, ok := errors.AsType[*sink.UndeliveredError](err); (!ok || e.Records != 1 || !errors.Is(e, errGate)) && (err != nil || r.Acked() != 1) {
			l.Errorf("Run: %v, %d records acknowledged", err, r.Acked())
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestRecordsBehindARejectedOneAreDroppedWithTheirRequest: the fence closes while the producer writes a request.
// The broker rejects a record that was sent earlier. The producer drops the request, and Run does not wait for the
// fence to open.
func TestRecordsBehindARejectedOneAreDroppedWithTheirRequest(t *testing.T) {
	for _, rejectedFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("rejected first: ", rejectedFirst), func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "t"))
			for p := range int32(2) {
				if err := k.Control.MoveTopicPartition("t", p, p); err != nil {
					t.Fatal(err)
				}
			}
			paused, goOn, reject := make(chan struct{}), make(chan struct{}), make(chan struct{})
			r, g, _ := gatedRig(t, k.Addrs, func() {
				close(paused)
				<-goOn
			})
			for p := range int32(2) {
				r.send(recordFor("t", p, "before"))
			}
			r.AwaitAcked(2)
			rejectPoison(k.Control, kerr.InvalidRecord)
			k.Control.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				k.SleepControl(func() { <-reject })
				return nil, nil, false
			})
			r.send(recordFor("t", 0, "poison"))
			r.producer.Flush()
			r.awaitRequests(1)
			r.send(recordFor("t", 1, strings.Repeat("long ", 50_000)))
			r.producer.Flush()
			<-paused
			g.closed.Store(true)
			if rejectedFirst {
				close(reject)
				r.awaitRequests(1)
				close(goOn)
			} else {
				close(goOn)
				r.awaitRequests(1)
				close(reject)
			}
			wantRecordError(t, r, 3)
			if got := values(k.ReadAll(t, "t"), 1); len(got) != 1 || r.Acked() != 2 {
				t.Errorf("partition 1 has %d records, %d are acknowledged", len(got), r.Acked())
			}
		})
	}
}

// TestOrderBehindAFlappingFence: the fence opens and closes at random, while another goroutine calls Flush. Every
// record is stored once and in order.
func TestOrderBehindAFlappingFence(t *testing.T) {
	const partitions, records = 6, 6000
	k := kafkatest.Fake(t, kfake.SeedTopics(partitions, "t"))
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	var steady atomic.Bool
	j := sinktest.NewJournal()
	r := startRig(t, openClient(t, Config{Brokers: k.Addrs, WindowRecords: 500}, j.Logger()), j, sink.WriterConfig{Fence: func() error {
		mu.Lock()
		defer mu.Unlock()
		if !steady.Load() && rng.IntN(4) == 0 {
			return errGate
		}
		return nil
	}})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			r.producer.Flush()
			select {
			case <-time.After(50 * time.Microsecond):
			case <-stop:
				return
			}
		}
	}()
	var want [partitions][]string
	for i := range records {
		p := i % partitions
		want[p] = append(want[p], fmt.Sprint(i, strings.Repeat(" long", i%7*20)))
		r.send(recordFor("t", int32(p), want[p][len(want[p])-1]))
	}
	r.AwaitAcked(records)
	close(stop)
	<-stopped
	steady.Store(true)
	r.drain()
	log := k.ReadAll(t, "t")
	for p, want := range want {
		if got := values(log, int32(p)); !slices.Equal(got, want) {
			t.Errorf("partition %d has %d records, not the %d that were sent, in order", p, len(got), len(want))
		}
	}
	s := r.client.Stat()
	t.Logf("%d connections were replaced", s.Reconnects)
	if s.Reconnects == 0 || s.DuplicatesPossible != 0 || s.Retries != 0 {
		t.Errorf("Stat: %+v", s)
	}
}
