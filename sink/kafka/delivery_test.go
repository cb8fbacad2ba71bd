package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestRecordsWithoutAKey share a partition per batch, and go around.
func TestRecordsWithoutAKey(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(sink.Record{Topic: "t", Partition: sink.AnyPartition})
		r.waitAcked(1)
		var batches [4]int
		l.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			ps := req.(*kmsg.ProduceRequest).Topics[0].Partitions
			if len(ps) > 1 {
				l.Errorf("a request for %d partitions", len(ps))
			}
			batches[ps[0].Partition]++
			return nil, nil, false
		})
		for round := range 40 {
			for range 50 {
				r.send(sink.Record{Topic: "t", Partition: sink.AnyPartition, Value: []byte("v")})
			}
			r.waitAcked(1 + 50*(round+1))
		}
		r.mustDrain()
		// A round is one batch, or two if the sender was still awake when it began.
		if lo, hi := slices.Min(batches[:]), slices.Max(batches[:]); lo < 10 || hi > 20 || hi-lo > 1 {
			l.Errorf("batches per partition: %v", batches)
		}
	}, kfake.SeedTopics(4, "t"))
}

// TestRecordsWithoutAKeyAvoidTrouble: they need not wait for a partition that others wait for.
func TestRecordsWithoutAKeyAvoidTrouble(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "stuck"))
		r.producer.Flush()
		synctest.Wait()
		for round := range 20 {
			r.send(sink.Record{Topic: "t", Partition: sink.AnyPartition, Value: []byte("v")})
			r.waitAcked(round + 1)
		}
	}, kfake.SeedTopics(3, "t"))
}

// TestWindow: Send blocks at the bound in records and at the bound in memory, and goes on
// when there is room.
func TestWindow(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		size int
		want func(records, memory int) bool
	}{
		{"records", Config{WindowRecords: 100}, 10, func(records, _ int) bool { return records == 100 }},
		{"bytes", Config{WindowBytes: 1 << 20}, 5000, func(_, memory int) bool { return memory > 900<<10 && memory <= 1<<20+maxChunk }},
		{"large records", Config{WindowBytes: 1 << 20}, 300_000, func(records, memory int) bool { return records == 2 && memory == 1<<20 }},
		{"one record too many", Config{WindowBytes: 1000}, 5000, func(records, _ int) bool { return records == 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				r := l.rig(tc.cfg)
				r.send(recordFor("t", 0, "warm")) // what waits for a topic is held in other pieces
				r.waitAcked(1)
				var frozen atomic.Bool
				frozen.Store(true)
				l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					l.fake.KeepControl()
					return nil, nil, frozen.Load() // never answered while true
				})
				ctx, cancel := context.WithTimeout(l.Context(), time.Second)
				defer cancel()
				rec := recordFor("t", 0, strings.Repeat("x", tc.size))
				var err error
				for i := r.seq; err == nil; i++ {
					rec.Seq, rec.Partition = i+1, int32(i%4)
					if err = r.producer.Send(ctx, &rec); err == nil {
						r.seq++
					}
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					l.Fatalf("Send: %v", err)
				}
				r.producer.mu.Lock()
				records, memory := r.producer.inFlightRecords, r.producer.memory
				r.producer.mu.Unlock()
				if !tc.want(records, memory) {
					l.Errorf("Send blocked at %d records, %d bytes", records, memory)
				}
				if s := r.client.Stat(); s.InFlightRecords != records || s.InFlightBytes != records*(tc.size+1) {
					l.Errorf("Stat says %d records, %d bytes", s.InFlightRecords, s.InFlightBytes)
				}
				frozen.Store(false)
				r.send(rec) // unblocks by itself: the hung request times out and is repeated
				r.mustDrain()
			}, kfake.SeedTopics(4, "t"))
		})
	}
}

// TestHungBroker: a broker that takes a request and never answers costs a read timeout, no
// record and no duplicate; its answer to the connection that was given up goes nowhere.
func TestHungBroker(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.waitAcked(1)
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
		began := time.Now()
		r.send(recordFor("t", 0, "1"))
		r.waitAcked(2)
		if took := time.Since(began); took < readTimeout || took > readTimeout+time.Second {
			l.Errorf("recovered after %s", took)
		}
		r.mustDrain()
		if s := r.client.Stat(); s.StalledSince != (time.Time{}) {
			l.Errorf("still stalled: %s", s.StallReason)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestStallIsLoggedOnce: after 30 s, with the reason; and its end.
func TestStallIsLoggedOnce(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
		began := time.Now()
		r.send(recordFor("t", 1, "stuck"))
		r.producer.Flush()
		time.Sleep(stallAfter - time.Second)
		if s := r.journal.String(); s != "" {
			l.Errorf("logged early: %s", s)
		}
		if s := r.client.Stat(); s.StalledSince.Sub(began) > time.Second || !strings.Contains(s.StallReason, "NOT_ENOUGH_REPLICAS") || s.LastError == "" {
			l.Errorf("Stat: %+v", s)
		}
		time.Sleep(2 * time.Second)
		if s := r.journal.String(); strings.Count(s, "sink stalled") != 1 || !strings.Contains(s, "NOT_ENOUGH_REPLICAS") || !strings.Contains(s, "partition=1") {
			l.Errorf("log: %s", s)
		}
		time.Sleep(10 * time.Minute)
		fault.Remove()
		time.Sleep(2 * time.Second)
		if s := r.journal.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, "sink recovered") {
			l.Errorf("log: %s", s)
		}
		r.mustDrain()
	}, kfake.SeedTopics(2, "t"))
}

// TestNeighbourOfATroubledPartition: healthy partitions of the same broker do not notice.
func TestNeighbourOfATroubledPartition(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault kfake.Fault
	}{
		{"leaderless", kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Err: kerr.LeaderNotAvailable}},
		{"replicas missing", kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				r := l.rig(Config{})
				r.send(recordFor("t", 0, "warm"))
				r.waitAcked(1)
				tc.fault.Topic, tc.fault.Partitions, tc.fault.Count = "t", []int32{0}, -1
				fault := l.fake.Fault(tc.fault)
				r.send(recordFor("t", 0, "stuck"))
				began := time.Now()
				for i := range 500 {
					r.send(recordFor("t", 1, fmt.Sprint(i)))
					r.waitAcked(2 + i)
				}
				if took := time.Since(began); took > 0 {
					l.Errorf("500 round trips of the healthy partition took %s of waiting", took)
				}
				fault.Remove()
				r.mustDrain()
			}, kfake.SeedTopics(2, "t"))
		})
	}
}

// TestCloseSendDuringTrouble: what is being retried is delivered before Run returns.
func TestCloseSendDuringTrouble(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		for i := range 1000 {
			r.send(recordFor("t", int32(i%2), fmt.Sprint(i)))
		}
		r.producer.CloseSend()
		time.Sleep(time.Minute)
		select {
		case err := <-r.runResult:
			l.Fatalf("Run has returned: %v", err)
		default:
		}
		fault.Remove()
		r.mustDrain()
	}, kfake.SeedTopics(2, "t"))
}

// TestCloseSendWithNothingSent: Run returns at once, even if it begins later.
func TestCloseSendWithNothingSent(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	r := newRig(t, Config{Brokers: k.Addrs})
	r.mustDrain()
	p := r.client.newProducer(sink.WriterConfig{})
	p.CloseSend()
	if err := p.Run(testContext(t), func([]uint64, error) {}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := p.Send(testContext(t), &sink.Record{Topic: "t"}); !errors.Is(err, errEnded) {
		t.Errorf("Send after Run: %v", err)
	}
}

// TestCancel: Run returns at once, whatever it is waiting for, and says what is left over.
func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	for name, trouble := range map[string]func(l *lab, r *rig){
		"hung broker": func(l *lab, _ *rig) {
			l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				l.fake.KeepControl()
				return nil, nil, true
			})
		},
		"hung metadata": func(l *lab, _ *rig) {
			l.fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
				l.fake.KeepControl()
				return nil, nil, true
			})
		},
		"back-off": func(l *lab, _ *rig) {
			l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		},
		"throttle": func(l *lab, r *rig) {
			throttle(l.fake, time.Hour)
			r.send(recordFor("t", 0, "x"))
			r.waitAcked(1)
		},
		"no broker": func(l *lab, _ *rig) { l.fake.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				r := l.rig(Config{})
				trouble(l, r)
				for range 300 {
					r.send(recordFor("t", 0, "x"))
				}
				r.producer.Flush()
				time.Sleep(100 * time.Millisecond)
				began := time.Now()
				r.cancel(cause)
				err := r.waitRun()
				if took := time.Since(began); took > 0 {
					l.Errorf("Run took %s to return", took)
				}
				e, ok := errors.AsType[*sink.UndeliveredError](err)
				if !ok || !errors.Is(err, cause) {
					l.Fatalf("Run: %v", err)
				}
				if e.Records+len(r.acked) != int(r.seq) || e.Sent > e.Records || name == "hung broker" && e.Sent == 0 || name == "no broker" && e.Sent != 0 {
					l.Errorf("%+v, %d acknowledged", e, len(r.acked))
				}
				if n := r.client.pool.out; n != 0 {
					l.Errorf("%d bytes were not given back", n)
				}
			}, kfake.SeedTopics(1, "t"))
		})
	}
}

// TestCancelWithNothingLeft: the cause alone is returned.
func TestCancelWithNothingLeft(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("t", 0, "x"))
	r.waitAcked(1)
	cause := errors.New("enough")
	r.cancel(cause)
	if err := r.waitRun(); err != cause { //nolint:errorlint // nothing may be wrapped around it
		t.Errorf("Run: %v", err)
	}
}

// TestSendGivesUpWithItsContext: a full window does not outlive the caller's patience.
func TestSendGivesUpWithItsContext(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{WindowRecords: 1})
		r.send(recordFor("missing", 0, "x"))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(l.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		rec := recordFor("missing", 0, "y")
		if err := r.producer.Send(ctx, &rec); !errors.Is(err, cause) {
			l.Errorf("Send: %v", err)
		}
	})
}

// TestThrottle: the next request waits as long as the broker has asked for (KIP-219).
func TestThrottle(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "a"))
		r.waitAcked(1)
		throttle(l.fake, 7*time.Second)
		r.send(recordFor("t", 1, "b"))
		r.waitAcked(2)
		began := time.Now()
		r.send(recordFor("t", 0, "c"))
		r.waitAcked(3)
		if took := time.Since(began); took != 7*time.Second {
			l.Errorf("waited %s", took)
		}
		r.mustDrain()
	}, kfake.SeedTopics(2, "t"))
}

// throttle has the cluster accept the next batch and ask for a pause.
func throttle(c *kfake.Cluster, d time.Duration) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := kafkatest.Accept(req.(*kmsg.ProduceRequest))
		res.ThrottleMillis = int32(d.Milliseconds())
		return res, nil, true
	})
}

// TestIdleConnection: a connection that brokers may have closed for idleness is replaced
// before it is used, rather than found out.
func TestIdleConnection(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		for i := range 3 {
			r.send(recordFor("t", 0, fmt.Sprint(i)))
			r.waitAcked(i + 1)
			time.Sleep(idleTimeout + time.Minute)
		}
		if s := r.client.Stat(); s.Retries != 0 {
			l.Errorf("%d retries", s.Retries)
		}
		r.mustDrain()
	}, kfake.SeedTopics(1, "t"))
}

// TestTwoBatchesOfAPartition in one request would be the loss of one of them.
func TestTwoBatchesOfAPartition(t *testing.T) {
	part := &partition{topic: new(topic), queue: []*batch{{}, {}}}
	part.markInFlight(part.queue[0])
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	part.markInFlight(part.queue[1])
}

// TestOnePerPartition looks at every request of a busy producer: one batch per partition,
// one request per connection, sequences without a gap.
func TestOnePerPartition(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(12, "t"))
	next := make(map[int32]int32)
	var wrong []string
	k.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		seen := make(map[int32]bool)
		for _, p := range req.(*kmsg.ProduceRequest).Topics[0].Partitions {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(p.Records); err != nil || seen[p.Partition] || b.FirstSequence != next[p.Partition] {
				wrong = append(wrong, fmt.Sprint(p.Partition, err, seen[p.Partition], b.FirstSequence, next[p.Partition]))
			}
			seen[p.Partition] = true
			next[p.Partition] = b.FirstSequence + b.NumRecords
		}
		return nil, nil, false
	})
	r := newRig(t, Config{Brokers: k.Addrs, ConnectionsPerBroker: 2})
	for i := range 50_000 {
		r.send(recordFor("t", int32(i%12), "x"))
	}
	r.mustDrain()
	if len(wrong) > 0 {
		t.Errorf("requests: %s", wrong)
	}
}

// TestOrderWithinAKey survives leader moves between three brokers.
func TestOrderWithinAKey(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(6, "t"))
	r := newRig(t, Config{Brokers: k.Addrs, WindowRecords: 500})
	want := make(map[string][]string)
	for i := range 20_000 {
		key := fmt.Sprint("key-", i%97)
		want[key] = append(want[key], fmt.Sprint(i))
		r.sendKeyed("t", key, fmt.Sprint(i))
		if i%500 == 0 {
			k.Control.ShufflePartitionLeaders()
		}
	}
	r.mustDrain()
	got := make(map[string][]string)
	for _, rec := range k.ReadAll(t, "t") {
		got[string(rec.Key)] = append(got[string(rec.Key)], string(rec.Value))
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Fatalf("%s: %d records, want %d in order", key, len(got[key]), len(want[key]))
		}
	}
}
