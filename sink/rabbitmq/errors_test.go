package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A rig is a Writer.
type rig struct {
	*sinktest.Session
	t    *testing.T
	sent uint64
}

func startWriter(t *testing.T, cfg Config, wc sink.WriterConfig) *rig {
	t.Helper()
	j := sinktest.NewJournal()
	on, err := cfg.Open(sinktest.Context(t), j.Logger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := on.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(j.String(), "s3cr3t") {
			t.Errorf("a log line shows the broker's text:\n%s", j)
		}
	})
	return &rig{Session: sinktest.StartSession(t, on, j, wc), t: t}
}

// send sends n records, each with a key and a body of its own.
func (r *rig) send(topic string, n int, headers ...sink.Header) {
	r.t.Helper()
	for range n {
		r.sent++
		id := fmt.Sprint(r.sent)
		rec := &sink.Record{Seq: r.sent, Topic: topic, Partition: sink.AnyPartition, Key: []byte("key " + id), Value: []byte("body " + id), Headers: headers}
		if err := r.Writer.Send(sinktest.Context(r.t), rec); err != nil {
			r.t.Fatal(err)
		}
	}
	r.Writer.Flush()
}

// TestCodes: each row of the table, as the reason for which the broker closes a channel, with other messages in flight, or a
// connection. Only the message that is the reason is affected.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, code := range append(codes(), codeError{code: 999, name: "error", class: retriable}) {
		if code.code == amqp.NoRoute {
			continue // see TestUnroutable
		}
		t.Run(code.name, func(t *testing.T) {
			t.Parallel()
			var healed atomic.Bool
			// The broker closes a channel with these codes, otherwise the connection.
			soft := slices.Contains([]int{311, 313, 403, 404, 405, 406}, code.code)
			isRejected := soft && code.class == rejected
			var mu sync.Mutex
			seen := make(map[string]bool)
			fake := startFake(t, func(p published) reaction {
				mu.Lock()
				before := seen[p.body]
				seen[p.body] = true
				mu.Unlock()
				switch {
				case p.body < "body 15" && strings.HasSuffix(p.body, "9"): // for example 149, and not 159
					return reaction{hold: !before} // it is in flight when the channel is closed
				case p.body != "body 150" || healed.Load():
					return reaction{}
				case soft:
					return reaction{channel: code.code}
				}
				return reaction{hangUp: code.code}
			})
			var reasons []*sink.RecordError
			r := startWriter(t, fake.config(), sink.WriterConfig{Substitute: func(rec *sink.Record, e *sink.RecordError) *sink.Record {
				reasons = append(reasons, e)
				rec.Value = []byte("instead")
				return rec
			}})
			r.send("events/x", 1)
			r.AwaitAcked(1) // from now on, messages for the exchange travel together
			r.send("events/x", 148)
			r.send("events/other", 1)
			r.send("events/x", 50)
			if isRejected {
				r.AwaitAcked(200)
				healed.Store(true)
			} else {
				r.AwaitAcked(199)
				r.Await("a retry", func() bool { return r.Sink.Stat().Retries > 0 })
				if r.IsAcked(150) {
					t.Error("the message is acknowledged")
				}
				healed.Store(true)
			}
			r.Drain(200)
			bodies := fake.bodies()
			for i := range 200 {
				want := fmt.Sprint("body ", i+1)
				if isRejected && i == 149 {
					want = "instead"
				}
				if !slices.Contains(bodies, want) {
					t.Errorf("%q is not stored", want)
				}
			}
			switch {
			case isRejected && (len(reasons) != 1 || reasons[0].Code != code.name || reasons[0].Seq != 150 || !reasons[0].TooLarge):
				t.Errorf("rejected are %v", reasons)
			case !isRejected && len(reasons) > 0:
				t.Errorf("rejected are %v", reasons)
			}
		})
	}
}

// TestUnroutable: a message that the broker returns is rejected, whatever else is in flight. One for a queue waits for the
// queue.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	var declared atomic.Bool
	fake := startFake(t, func(p published) reaction {
		return reaction{unrouted: p.routingKey == "unbound" || p.routingKey == "queue" && !declared.Load()}
	})
	var rejected []uint64
	r := startWriter(t, fake.config(), sink.WriterConfig{Substitute: func(rec *sink.Record, e *sink.RecordError) *sink.Record {
		rejected = append(rejected, e.Seq)
		if e.Code != "NO_ROUTE" || e.TooLarge {
			t.Errorf("rejected because of %q: %v", e.Code, e)
		}
		rec.Topic = "dead/letters"
		return rec
	}})
	r.send("events/bound", 100)
	r.send("events/unbound", 3)
	r.send("/queue", 1)
	r.send("events/bound", 100)
	r.AwaitAcked(203)
	r.Await("the missing queue", func() bool { return r.Sink.Stat().StallMissing == "/queue" })
	if advice := r.Sink.Stat().StallAdvice; !strings.Contains(advice, "declare queue name='queue'") {
		t.Errorf("advice %q", advice)
	}
	declared.Store(true)
	r.Drain(204)
	slices.Sort(rejected)
	if !slices.Equal(rejected, []uint64{101, 102, 103}) || len(fake.bodies()) != 204 {
		t.Errorf("rejected are %v, %d are stored", rejected, len(fake.bodies()))
	}
}

// TestEqualMessages: of messages that differ in nothing, some are returned. As many are rejected.
func TestEqualMessages(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	fake := startFake(t, func(p published) reaction {
		return reaction{unrouted: p.body == "same" && n.Add(1)%2 == 0}
	})
	var rejected atomic.Int32
	r := startWriter(t, fake.config(), sink.WriterConfig{Substitute: func(rec *sink.Record, _ *sink.RecordError) *sink.Record {
		rejected.Add(1)
		rec.Value = []byte("instead")
		return rec
	}})
	r.send("events/x", 1)
	r.AwaitAcked(1)
	for seq := range uint64(100) {
		if err := r.Writer.Send(sinktest.Context(t), &sink.Record{Seq: seq + 2, Topic: "events/x", Partition: sink.AnyPartition, Value: []byte("same")}); err != nil {
			t.Fatal(err)
		}
	}
	r.Drain(101)
	if rejected.Load() != 50 || len(fake.bodies()) != 101 {
		t.Errorf("%d are rejected, %d are stored", rejected.Load(), len(fake.bodies()))
	}
}

// TestHeldConfirm: a message without a confirm, as for a queue without a quorum, does not delay the confirms of others.
func TestHeldConfirm(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	fake := startFake(t, func(p published) reaction {
		if p.exchange == "slow" {
			close(held)
		}
		return reaction{hold: p.exchange == "slow"}
	})
	r := startWriter(t, fake.config(), sink.WriterConfig{})
	r.send("events/x", 1)
	r.send("slow/x", 1)
	wait.Receive(t, "the message without a confirm", held)
	r.AwaitAcked(1)
	r.send("events/x", 500)
	r.AwaitAcked(501)
	if r.IsAcked(2) {
		t.Error("the message without a confirm is acknowledged")
	}
	enough := errors.New("enough")
	r.Stop(enough)
	undelivered, ok := errors.AsType[*sink.UndeliveredError](r.Wait())
	if !ok || undelivered.Records != 1 || undelivered.Sent != 1 {
		t.Errorf("Run: %+v", undelivered)
	}
}

// TestChecks: messages that would end the connection are rejected before.
func TestChecks(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(published) reaction { return reaction{} })
	long := strings.Repeat("x", 256)
	for want, rec := range map[error]*sink.Record{
		errNameTooLong: {Topic: "events/" + long},
		errHeaders:     {Topic: "events/x", Key: []byte(strings.Repeat("x", 131_072))},
		errReserved:    {Topic: "events/x", Headers: []sink.Header{{Key: NullHeader, Value: []byte("s3cr3t")}}},
		errBody:        {Topic: "events/x", Value: make([]byte, 1001)},
	} {
		cfg := fake.config()
		cfg.MaxMessageBytes = 1000
		r := startWriter(t, cfg, sink.WriterConfig{})
		rec.Seq, rec.Partition = 1, sink.AnyPartition
		if err := r.Writer.Send(sinktest.Context(t), rec); err != nil {
			t.Fatal(err)
		}
		r.Writer.Flush()
		if err := r.Wait(); !errors.Is(err, want) {
			t.Errorf("Run: %v, want %v", err, want)
		}
	}
	// The largest key that fits is sent.
	r := startWriter(t, fake.config(), sink.WriterConfig{})
	if err := r.Writer.Send(sinktest.Context(t), &sink.Record{Seq: 1, Topic: "events/x", Partition: sink.AnyPartition, Key: []byte(strings.Repeat("x", 130_900))}); err != nil {
		t.Fatal(err)
	}
	r.Drain(1)
}

// Rows may choose any number of exchanges: what is remembered of them is limited.
func TestManyExchanges(t *testing.T) {
	tr := newTransport(Config{}, nil, nil)
	for i := range 2 * maxRemembered {
		tr.rememberAccepted(&flight{destination: destination{exchange: fmt.Sprint(i)}}, stored)
	}
	if last := fmt.Sprint(2*maxRemembered - 1); len(tr.known) > maxRemembered || !tr.known[last] {
		t.Errorf("%d exchanges are remembered", len(tr.known))
	}
}

var errGate = errors.New("another writer is active")

// A gate is a fence.
type gate struct{ closed atomic.Bool }

func (g *gate) check() error {
	if g.closed.Load() {
		return errGate
	}
	return nil
}

// wantUndelivered waits for the end of Run with a closed fence.
func (r *rig) wantUndelivered(records, sent int) {
	r.t.Helper()
	r.Writer.CloseSend()
	err := r.Wait()
	if undelivered, ok := errors.AsType[*sink.UndeliveredError](err); !ok || undelivered.Records != records || undelivered.Sent != sent || !errors.Is(err, errGate) {
		r.t.Errorf("Run: %+v, want %d undelivered records of which %d were sent", err, records, sent)
	}
}

// A message that waits for a channel of its own is not written if the fence has closed meanwhile.
func TestFenceClosesWhileChannelOpens(t *testing.T) {
	t.Parallel()
	var g gate
	s := startFake(t, func(published) reaction { return reaction{} })
	s.opening = func(channel uint16) {
		if channel == 2 {
			g.closed.Store(true)
		}
	}
	r := startWriter(t, s.config(), sink.WriterConfig{Fence: g.check})
	r.send("events", 1)
	r.Await("a closed fence", g.closed.Load)
	r.wantUndelivered(1, 0)
	if bodies := s.bodies(); len(bodies) > 0 {
		t.Errorf("stored are %q", bodies)
	}
}

// A message that was written to a channel that the broker has closed counts as sent, also if the fence then forbids to
// send it again.
func TestFenceClosesBeforeResend(t *testing.T) {
	t.Parallel()
	var g gate
	s := startFake(t, func(p published) reaction {
		switch p.body {
		case "body 2":
			return reaction{hold: true}
		case "body 3":
			g.closed.Store(true)
			return reaction{channel: amqp.PreconditionFailed}
		}
		return reaction{}
	})
	r := startWriter(t, s.config(), sink.WriterConfig{Fence: g.check})
	r.send("events", 1)
	r.AwaitAcked(1)
	r.send("events", 2)
	r.Await("a closed fence", g.closed.Load)
	r.wantUndelivered(2, 2)
}

// While the broker blocks publishing, Stat says so, also about messages that it has not confirmed. Nothing is written.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		received := 0
		s := startFake(t, func(p published) reaction {
			received++
			if p.body == "body 2" {
				return reaction{block: unblock}
			}
			return reaction{}
		})
		r := startWriter(t, s.config(), sink.WriterConfig{})
		r.send("events", 1)
		r.AwaitAcked(1)
		r.send("events", 1)
		r.Await("a stall", func() bool { return r.Sink.Stat().StallReason != "" })
		r.send("events", 1)
		r.send("others", 1)
		r.Await("retries", func() bool { return r.Sink.Stat().Retries > 1 })
		if reason := r.Sink.Stat().StallReason; !strings.HasSuffix(reason, "the broker blocks publishing: low on memory") || r.Acked() != 1 {
			t.Errorf("stalled: %s; %d messages are acknowledged", reason, r.Acked())
		}
		close(unblock)
		r.Drain(4)
		if st := r.Sink.Stat(); received != 4 || st.Reconnects > 0 {
			t.Errorf("the server has received %d messages, %d reconnects", received, st.Reconnects)
		}
		if log := r.Journal.String(); !strings.Contains(log, "broker accepts messages again") {
			t.Error(log)
		}
	})
}

// A check of several destinations ends while the broker blocks publishing, although it then reads nothing more.
func TestInspectDuringAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		defer close(unblock)
		s := startFake(t, func(published) reaction { return reaction{block: unblock} })
		start := time.Now()
		findings := s.config().Inspect(t.Context(), sink.Use{Destinations: []sink.Destination{{Name: "events"}, {Name: "others"}}})
		if took := bubble.Since(start); took > closeWait {
			t.Errorf("it took %s", took)
		}
		if len(findings) != 3 {
			t.Fatalf("found %+v", findings)
		}
		for _, f := range findings[1:] {
			if f.State != sink.Failed || !strings.Contains(f.Found, "the broker blocks publishing: low on memory") || !strings.Contains(f.Fix, "rabbitmqctl status") {
				t.Errorf("found %+v", f)
			}
		}
	})
}

// A check of several destinations ends although an alarm begins and ends at each, and so does the connection.
func TestCheckDuringShortAlarms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		close(unblock)
		s := startFake(t, func(published) reaction { return reaction{block: unblock, channel: amqp.PreconditionFailed} })
		on, err := s.config().Open(sinktest.Context(t), sinktest.NewJournal().Logger())
		if err != nil {
			t.Fatal(err)
		}
		k, err := s.config().withDefaults().newDialer().connect(sinktest.Context(t), fakeAddr)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := k.checkDestination(destination{exchange: "events"}, "guest"); err != nil && !strings.Contains(err.Error(), "block") {
				t.Errorf("checkDestination: %v", err)
			}
		}
		start := time.Now()
		k.close()
		if took := bubble.Since(start); took > time.Second { // a close whose response does not come takes two
			t.Errorf("close took %s", took)
		}
		_ = on.Close()
	})
}
