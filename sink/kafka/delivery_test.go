package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestRecordsWithoutAKeyShareAPartitionPerBatch: the records without a key of one batch go to the same partition.
// The next batch goes to the next partition.
func TestRecordsWithoutAKeyShareAPartitionPerBatch(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(sink.Record{Topic: "t", Partition: sink.AnyPartition})
		r.AwaitAcked(1)
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
			r.AwaitAcked(1 + 50*(round+1))
		}
		r.drain()
		// A round is one batch, or two if the sender was still active when the round began.
		if lo, hi := slices.Min(batches[:]), slices.Max(batches[:]); lo < 10 || hi > 20 || hi-lo > 1 {
			l.Errorf("batches per partition: %v", batches)
		}
	}, kfake.SeedTopics(4, "t"))
}

// TestRecordsWithoutAKeyAvoidRetryingPartitions: a record without a key does not wait for a partition that is being
// retried.
func TestRecordsWithoutAKeyAvoidRetryingPartitions(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "stuck"))
		r.producer.Flush()
		synctest.Wait()
		for round := range 20 {
			r.send(sink.Record{Topic: "t", Partition: sink.AnyPartition, Value: []byte("v")})
			r.AwaitAcked(round + 1)
		}
	}, kfake.SeedTopics(3, "t"))
}

// TestSendBlocksAtTheWindow: Send blocks at the limit for records and at the limit for memory. It continues when
// there is room.
func TestSendBlocksAtTheWindow(t *testing.T) {
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
				r.send(recordFor("t", 0, "warm")) // records that wait for their topic are stored in chunks of another size
				r.AwaitAcked(1)
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
				records, memory := r.producer.inFlightRecords, r.client.pool.inUse()
				r.producer.mu.Unlock()
				if !tc.want(records, memory) {
					l.Errorf("Send blocked at %d records, %d bytes", records, memory)
				}
				if s := r.client.Stat(); s.InFlightRecords != records || s.InFlightBytes != records*(tc.size+1) {
					l.Errorf("Stat says %d records, %d bytes", s.InFlightRecords, s.InFlightBytes)
				}
				frozen.Store(false)
				r.send(rec) // no help is needed: the request times out and is sent again
				r.drain()
			}, kfake.SeedTopics(4, "t"))
		})
	}
}

// TestUnansweredRequestIsRetried: a broker receives a request and never responds. The client waits for a read
// timeout and retries, without loss or duplicates. It ignores a late response on the closed connection.
func TestUnansweredRequestIsRetried(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.AwaitAcked(1)
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
		began := time.Now()
		r.send(recordFor("t", 0, "1"))
		r.AwaitAcked(2)
		if took := bubble.Since(began); took < readTimeout || took > readTimeout+time.Second {
			l.Errorf("recovered after %s", took)
		}
		r.drain()
		if s := r.client.Stat(); s.StalledSince != (time.Time{}) {
			l.Errorf("still stalled: %s", s.StallReason)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestStallIsLoggedOnce: the client logs a stall after stallAfter, with the reason. It also logs the end of the stall.
func TestStallIsLoggedOnce(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
		began := time.Now()
		r.send(recordFor("t", 1, "stuck"))
		r.producer.Flush()
		bubble.Sleep(stallAfter - time.Second)
		if s := r.Journal.String(); s != "" {
			l.Errorf("logged early: %s", s)
		}
		if s := r.client.Stat(); s.StalledSince.Sub(began) > time.Second || !strings.Contains(s.StallReason, "NOT_ENOUGH_REPLICAS") || s.LastError == "" {
			l.Errorf("Stat: %+v", s)
		}
		bubble.Sleep(2 * time.Second)
		if s := r.Journal.String(); strings.Count(s, "sink stalled") != 1 || !strings.Contains(s, "NOT_ENOUGH_REPLICAS") || !strings.Contains(s, "partition=1") {
			l.Errorf("log: %s", s)
		}
		bubble.Sleep(10 * time.Minute)
		fault.Remove()
		bubble.Sleep(2 * time.Second)
		if s := r.Journal.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, "sink recovered") {
			l.Errorf("log: %s", s)
		}
		r.drain()
	}, kfake.SeedTopics(2, "t"))
}

// TestRetryDoesNotDelayOtherPartitions: a retry does not delay healthy partitions of the same broker.
func TestRetryDoesNotDelayOtherPartitions(t *testing.T) {
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
				r.AwaitAcked(1)
				tc.fault.Topic, tc.fault.Partitions, tc.fault.Count = "t", []int32{0}, -1
				fault := l.fake.Fault(tc.fault)
				r.send(recordFor("t", 0, "stuck"))
				began := time.Now()
				for i := range 500 {
					r.send(recordFor("t", 1, fmt.Sprint(i)))
					r.AwaitAcked(2 + i)
				}
				if took := bubble.Since(began); took > 0 {
					l.Errorf("500 round trips of the healthy partition waited for %s", took)
				}
				fault.Remove()
				r.drain()
			}, kfake.SeedTopics(2, "t"))
		})
	}
}

// TestCloseSendWaitsForRetries: Run returns only after the retried records are acknowledged.
func TestCloseSendWaitsForRetries(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		for i := range 1000 {
			r.send(recordFor("t", int32(i%2), fmt.Sprint(i)))
		}
		r.producer.CloseSend()
		bubble.Sleep(time.Minute)
		if r.Ended() {
			l.Fatalf("Run has returned: %v", r.Wait())
		}
		fault.Remove()
		r.drain()
	}, kfake.SeedTopics(2, "t"))
}

// TestCloseSendBeforeRun: if CloseSend is called before Run, Run returns at once and Send rejects records.
func TestCloseSendBeforeRun(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	p := openClient(t, Config{Brokers: k.Addrs}, slog.New(slog.DiscardHandler)).newProducer(sink.WriterConfig{})
	p.CloseSend()
	if err := p.Run(sinktest.Context(t), func([]uint64, error) {}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := p.Send(sinktest.Context(t), &sink.Record{Topic: "t"}); !errors.Is(err, errEnded) {
		t.Errorf("Send after Run: %v", err)
	}
}

// TestRunReturnsAtOnceWhenStopped: Run returns at once when its context ends, whatever it is waiting for. Its error
// names the unacknowledged records.
func TestRunReturnsAtOnceWhenStopped(t *testing.T) {
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
			r.AwaitAcked(1)
		},
		"no broker": func(l *lab, _ *rig) { l.fake.Close() },
		"probe of a silent broker": func(l *lab, r *rig) {
			l.hangBroker(kmsg.Produce, kmsg.Metadata)
			r.send(recordFor("t", 0, "x"))
			r.producer.Flush()
			bubble.Sleep(silenceAfter + pingTimeout/2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				r := l.rig(Config{})
				trouble(l, r)
				for range 300 {
					r.send(recordFor("t", 0, "x"))
				}
				r.producer.Flush()
				bubble.Sleep(100 * time.Millisecond)
				began := time.Now()
				r.Stop(cause)
				err := r.Wait()
				if took := bubble.Since(began); took > 0 {
					l.Errorf("Run took %s to return", took)
				}
				e, ok := errors.AsType[*sink.UndeliveredError](err)
				if !ok || !errors.Is(err, cause) {
					l.Fatalf("Run: %v", err)
				}
				if e.Records+r.Acked() != int(r.seq) || e.Sent > e.Records || name == "hung broker" && e.Sent == 0 || name == "no broker" && e.Sent != 0 {
					l.Errorf("%+v, %d acknowledged", e, r.Acked())
				}
				if s := r.Journal.String(); strings.Contains(s, "does not respond") {
					l.Errorf("log: %s", s)
				}
				if n := r.client.pool.inUse(); n != 0 {
					l.Errorf("%d bytes were not released", n)
				}
			}, kfake.SeedTopics(1, "t"))
		})
	}
}

// TestRunReturnsTheCauseAlone: Run returns the cause of its context without wrapping it.
func TestRunReturnsTheCauseAlone(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("t", 0, "x"))
	r.AwaitAcked(1)
	cause := errors.New("enough")
	r.Stop(cause)
	if err := r.Wait(); err != cause { //nolint:errorlint // nothing may be wrapped around it
		t.Errorf("Run: %v", err)
	}
}

// TestIdleConnectionIsReplaced: the client replaces a connection that has been idle for so long that the broker may
// have closed it. It does so before the next request, so no request fails.
func TestIdleConnectionIsReplaced(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		for i := range 3 {
			r.send(recordFor("t", 0, fmt.Sprint(i)))
			r.AwaitAcked(i + 1)
			bubble.Sleep(idleTimeout + time.Minute)
		}
		if s := r.client.Stat(); s.Retries != 0 {
			l.Errorf("%d retries", s.Retries)
		}
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// A forgetfulNetwork can drop the state of its connections, as a firewall does. Later writes are discarded, and
// neither side gets an error.
type forgetfulNetwork struct {
	dial  dialFunc
	epoch atomic.Int64 // connections with a lower epoch are dropped
}

func (n *forgetfulNetwork) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := n.dial(ctx, network, addr)
	return &forgettableConn{conn, n, n.epoch.Load()}, err
}

type forgettableConn struct {
	net.Conn

	network *forgetfulNetwork
	epoch   int64
}

func (c *forgettableConn) Write(b []byte) (int, error) {
	if c.epoch < c.network.epoch.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestForgottenConnectionIsReplacedSoon: a firewall may drop an idle connection without notice. No request waits on
// such a connection for longer than moveTimeout. The client keeps connections that respond.
func TestForgottenConnectionIsReplacedSoon(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		n, j := &forgetfulNetwork{dial: l.net.DialContext}, sinktest.NewJournal()
		s := l.positions(n.connect, j)
		c, err := open(l.Context(), Config{Brokers: l.addrs}, j.Logger(), n.connect)
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _ = c.Close() })
		r, o := startRig(l, c, j, sink.WriterConfig{}), own(l, s)
		opened := j.String()
		uses := map[string]func(i int){
			"send":  func(i int) { r.send(recordFor("t", 0, fmt.Sprint(i))); r.AwaitAcked(i + 1) },
			"write": func(i int) { write(l, o, fmt.Sprint(i)) },
			"read":  func(i int) { wantValue(l, s, fmt.Sprint(i)) },
			"look": func(int) {
				if err := c.cluster.refresh(l.Context(), []string{"t"}); err != nil {
					l.Error(err)
				}
			},
		}
		for i := range 4 {
			forgotten := i >= 2
			bubble.Sleep(50 * time.Second) // the client refreshes its metadata in between
			if forgotten {
				n.epoch.Add(1)
			}
			for _, name := range []string{"send", "write", "read", "look"} {
				began := time.Now()
				uses[name](i)
				if took := bubble.Since(began); took > 2*moveTimeout+time.Second || took > 0 && !forgotten { // a read may use two connections
					l.Errorf("%s %d took %s", name, i, took)
				}
			}
		}
		if s := r.client.Stat(); s.Retries != 0 || s.Reconnects != 2 {
			l.Errorf("%d retries, %d reconnects", s.Retries, s.Reconnects)
		}
		r.drain()
		if s := j.String(); s != opened {
			l.Errorf("log: %s", s)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestSecondBatchOfAPartitionPanics: a request must not contain two batches of a partition, since the broker would
// lose one of them.
func TestSecondBatchOfAPartitionPanics(t *testing.T) {
	part := &partition{topic: new(topic), queue: []*batch{{}, {}}}
	part.markInFlight(part.queue[0])
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	part.markInFlight(part.queue[1])
}

// TestRequestHasOneBatchPerPartition checks every request of a busy producer: one batch per partition, one request
// in flight per connection, and no gaps in the sequence numbers.
func TestRequestHasOneBatchPerPartition(t *testing.T) {
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
	r.drain()
	if len(wrong) > 0 {
		t.Errorf("requests: %s", wrong)
	}
}
