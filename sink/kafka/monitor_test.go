package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// TestSilentBrokerIsDiagnosed: if a broker does not respond, the client probes it for the reason. It logs the
// reason once, reports it in Stat, and logs when the broker responds again.
func TestSilentBrokerIsDiagnosed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brokers int
		begin   func(l *lab, s *faultyNetwork) (heal func())
		says    string
		ends    string
		lines   int
	}{
		{
			"answers others", 1, func(l *lab, _ *faultyNetwork) func() { return l.hangBroker(kmsg.Produce) },
			"responds to other requests, but not to the one with records: it waits for its disk or is overloaded", "broker responds again", 4,
		},
		{
			"waits for replicas", 3, func(l *lab, _ *faultyNetwork) func() { return l.hangBroker(kmsg.Produce) },
			"it waits for its disk or for an in-sync replica (topic t, partition 0 is on brokers 0, 1, 2)", "broker responds again", 4,
		},
		{
			"answers nothing", 1, func(l *lab, _ *faultyNetwork) func() { return l.hangBroker(kmsg.Metadata, kmsg.Produce) },
			"accepts connections but does not respond", "broker responds again", 4,
		},
		{
			"cannot be connected to", 1, func(l *lab, s *faultyNetwork) func() {
				release := l.hangBroker(kmsg.Produce)
				s.err.Store(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
				return func() { s.err.Store(nil); release() }
			},
			"cannot be connected to: localhost:9092: dial tcp: connection refused", "broker responds again", 4,
		},
		{
			"has another listener", 1, func(l *lab, s *faultyNetwork) func() {
				release := l.hangBroker(kmsg.Produce)
				s.err.Store(&net.OpError{Op: "dial", Net: "tcp", Err: otherListener(errors.New("is it a plaintext listener?"))})
				return func() { s.err.Store(nil); release() }
			},
			"is it a plaintext listener?", "broker responds again", 4,
		},
		{
			"led elsewhere", 2, func(l *lab, _ *faultyNetwork) func() {
				l.hangBroker(kmsg.Produce)
				return func() { l.moveLeader(1) }
			},
			"it waits for its disk", "no request waits for the broker any more", 5, // the client learns from metadata that the leader has changed
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, tc.brokers, func(l *lab) {
				l.moveLeader(0)
				r, s := l.rigOver()
				r.send(recordFor("t", 0, "before"))
				r.AwaitAcked(1)
				heal := tc.begin(l, s)
				began := time.Now()
				r.send(recordFor("t", 0, "1"))
				r.producer.Flush()
				synctest.Wait()
				r.send(recordFor("t", 0, "2"))
				bubble.Sleep(silenceAfter - time.Millisecond)
				if s := r.client.Stat(); r.Journal.String() != "" || !s.StalledSince.IsZero() {
					l.Errorf("known early: %s %+v", r.Journal, s)
				}
				bubble.Sleep(pingTimeout + 2*time.Millisecond)
				wantSilence(l, r, began, tc.says)
				bubble.Sleep(2*readTimeout + time.Second)
				wantSilence(l, r, began, tc.says)
				if _, s, _ := strings.Cut(r.Journal.String(), "sink stalled"); strings.Contains(s, "sink stalled") || !strings.Contains(s, tc.says) {
					l.Errorf("log: %s", r.Journal)
				}
				if fixes := strings.Count(r.Journal.String(), `fix="Fix sink.kafka.tls or sink.kafka.sasl`); fixes != 0 && tc.name != "has another listener" || fixes == 0 && tc.name == "has another listener" {
					l.Errorf("%d lines with a fix: %s", fixes, r.Journal)
				}
				if advised := strings.Contains(r.client.Stat().StallAdvice, "that the brokers run"); advised != (tc.name == "cannot be connected to") {
					l.Errorf("advice: %s", r.client.Stat().StallAdvice)
				}
				heal()
				r.AwaitAcked(3)
				synctest.Wait()
				if s := r.Journal.String(); strings.Count(s, tc.ends) != 1 || strings.Count(s, "sink recovered") != 1 || strings.Count(s, "\n") != tc.lines {
					l.Errorf("log: %s", s)
				}
				r.drain()
				t.Log(r.Journal)
			}, kfake.SeedTopics(1, "t"))
		})
	}
}

// TestSilenceBeforeARecordIsSent: a broker falls silent before the client knows where to send. That is a stall after silenceAfter, too,
// although no produce request waits.
func TestSilenceBeforeARecordIsSent(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		heal := l.hangBroker(kmsg.Metadata)
		began := time.Now()
		r.send(recordFor("t", 0, "1"))
		r.producer.Flush()
		bubble.Sleep(silenceAfter + time.Millisecond)
		if s := r.client.Stat(); s.StalledSince.IsZero() || s.StalledSince.Sub(began) > time.Second || s.StallReason != "no response to a request for metadata" {
			l.Errorf("Stat: %v, %q", s.StalledSince, s.StallReason)
		}
		if s := r.Journal.String(); strings.Count(s, "sink stalled") != 1 {
			l.Errorf("log: %s", s)
		}
		heal()
		r.AwaitAcked(1)
		synctest.Wait()
		if s := r.Journal.String(); strings.Count(s, "sink recovered") != 1 || strings.Count(s, "sink stalled") != 1 {
			l.Errorf("log: %s", s)
		}
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// wantSilence checks that the client has reported broker 0 once, with the expected reason.
func wantSilence(l *lab, r *rig, began time.Time, says string) {
	l.Helper()
	log := r.Journal.String()
	if strings.Count(log, "broker does not respond") != 1 || !strings.Contains(log, says) ||
		!strings.Contains(log, "broker=0 addr=localhost:9092") || !strings.Contains(log, "records=2") {
		l.Errorf("log: %s", log)
	}
	if s := r.client.Stat(); !s.StalledSince.Equal(began) || !strings.Contains(s.StallReason, "broker 0 at localhost:9092 ") || !strings.Contains(s.StallReason, says) {
		l.Errorf("stalled since %s after the start: %s", s.StalledSince.Sub(began), s.StallReason)
	}
}

// TestSilentBrokerLeadsNoLonger: the probe detects that a silent broker no longer leads the partition. It asks the
// broker itself, and another broker if the first does not respond to that either.
func TestSilentBrokerLeadsNoLonger(t *testing.T) {
	for _, keys := range [][]kmsg.Key{{kmsg.Produce}, {kmsg.Produce, kmsg.Metadata}} {
		inLab(t, 2, func(l *lab) {
			l.moveLeader(0)
			r := l.rig(Config{})
			r.send(recordFor("t", 0, "before"))
			r.AwaitAcked(1)
			l.hangBroker(keys...)
			r.send(recordFor("t", 0, "x"))
			r.producer.Flush()
			synctest.Wait()
			l.moveLeader(1)
			bubble.Sleep(silenceAfter + 2*pingTimeout)
			if s := r.Journal.String(); !strings.Contains(s, "no longer leads topic t, partition 0: broker 1 at localhost:9093 does") ||
				strings.Contains(s, "accepts connections") != (len(keys) == 2) {
				l.Errorf("log: %s", s)
			}
			r.drain()
		}, kfake.SeedTopics(1, "t"))
	}
}

// TestThrottledRequestWaits: the producer pauses for the throttle time that the broker returned (KIP-219). It logs
// a long pause, and does not probe the broker meanwhile.
func TestThrottledRequestWaits(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		const pause = 20 * time.Second
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "a"))
		r.AwaitAcked(1)
		throttle(l.fake, pause)
		r.send(recordFor("t", 1, "b"))
		r.AwaitAcked(2)
		probes := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Observe: true, Count: -1})
		began := time.Now()
		r.send(recordFor("t", 0, "c"))
		r.AwaitAcked(3)
		if took := bubble.Since(began); took != pause {
			l.Errorf("waited %s", took)
		}
		synctest.Wait()
		if s := r.Journal.String(); strings.Count(s, `reason="throttles us`) != 1 || strings.Count(s, "broker responds again") != 1 || probes.Hits() != 0 {
			l.Errorf("%d probes; log: %s", probes.Hits(), s)
		}
		r.drain()
	}, kfake.SeedTopics(2, "t"))
}

// TestNewReasonOfASilenceIsLogged: the client logs another line if the reason changes.
func TestNewReasonOfASilenceIsLogged(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r, s := l.rigOver()
		r.send(recordFor("t", 0, "before"))
		r.AwaitAcked(1)
		release := l.hangBroker(kmsg.Produce)
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		bubble.Sleep(silenceAfter + time.Second)
		s.err.Store(&net.OpError{Op: "dial", Err: errors.New("no route to host")})
		bubble.Sleep(probeEvery)
		s.err.Store(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
		bubble.Sleep(2 * probeEvery)
		log := r.Journal.String()
		for says, times := range map[string]int{"responds to other requests": 2, "no route to host": 1, "connection refused": 1} { // the stall has the first reason, too
			if strings.Count(log, says) != times {
				l.Errorf("%q is not there %d times", says, times)
			}
		}
		if strings.Count(log, "\n") != 4 || strings.Count(log, "sink stalled") != 1 {
			l.Errorf("log: %s", log)
		}
		s.err.Store(nil)
		release()
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// TestReconnectedBrokerIsNotBlamed: a broker becomes reachable again, and the client has only just reconnected or
// resent the request. The client does not yet report that the broker leaves this request unanswered.
func TestReconnectedBrokerIsNotBlamed(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r, s := l.rigOver()
		r.send(recordFor("t", 0, "before"))
		r.AwaitAcked(1)
		release := l.hangBroker(kmsg.Produce)
		s.err.Store(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		bubble.Sleep(readTimeout + probeEvery) // the client closes the connection and cannot open another one
		s.err.Store(nil)
		bubble.Sleep(silenceAfter - time.Millisecond)
		if log := r.Journal.String(); strings.Count(log, "broker does not respond") != 1 {
			l.Errorf("log: %s", log)
		}
		bubble.Sleep(2 * probeEvery)
		if log := r.Journal.String(); strings.Count(log, "responds to other requests") != 1 {
			l.Errorf("log: %s", log)
		}
		release()
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// TestSlowBrokerIsLoggedOnceAMinute: if a broker takes longer than silenceAfter for every request, the client logs
// that at most once a minute.
func TestSlowBrokerIsLoggedOnceAMinute(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "before"))
		r.AwaitAcked(1)
		l.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			l.fake.KeepControl()
			l.cluster.SleepControl(func() { bubble.Sleep(silenceAfter + 2*time.Second) })
			return nil, nil, false
		})
		began := time.Now()
		for i := 1; bubble.Since(began) < 10*time.Minute; i++ {
			r.send(recordFor("t", 0, fmt.Sprint(i)))
			r.AwaitAcked(i + 1)
		}
		synctest.Wait()
		log := r.Journal.String()
		if n := strings.Count(log, "broker does not respond"); n < 8 || n > 10 || strings.Count(log, "broker responds again") != n {
			l.Errorf("%d reports: %s", n, log)
		}
		r.drain()
		if len(r.producer.silences) > 1 {
			l.Errorf("%d silences are remembered", len(r.producer.silences))
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestSilentBrokerIsProbedOncePerInterval: the client sends one probe per interval.
func TestSilentBrokerIsProbedOncePerInterval(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "before"))
		r.AwaitAcked(1)
		l.hangBroker(kmsg.Produce)
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		asked := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Observe: true, Count: -1})
		bubble.Sleep(10 * time.Minute)
		if n, most := asked.Hits(), int(10*time.Minute/probeEvery); n < most-2 || n > most {
			l.Errorf("asked %d times, want %d", n, most)
		}
	}, kfake.SeedTopics(1, "t"))
}

// TestUnansweredConnectionIsLogged: the client logs a broker that does not respond while it connects or logs in.
func TestUnansweredConnectionIsLogged(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for the limits of a silent broker, and sarama for the response on a mutex, which stops the clock of a lab")
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	var mu sync.Mutex
	var dead []net.Conn
	dials, silent := 0, true
	r := newRig(t, Config{Brokers: k.Addrs, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if dials++; dials == 1 || !silent { // the first is for metadata
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		c, server := net.Pipe()
		dead = append(dead, server)
		return c, nil
	}})
	r.send(recordFor("t", 0, "x"))
	r.producer.Flush()
	r.awaitLog("accepts connections but does not respond")
	mu.Lock()
	silent = false
	for _, c := range dead {
		c.Close()
	}
	mu.Unlock()
	r.awaitLog("broker responds again")
	r.drain()
}

// TestExplainSilence: the reason that the client derives from a broker's metadata of a partition for which it does
// not respond.
func TestExplainSilence(t *testing.T) {
	at := topicPartition{"t", 3}
	q := probe{node: 1, addr: "a:1", partitions: []topicPartition{at}}
	partition := func(leader int32, isr ...int32) clusterView {
		return clusterView{
			brokers:    map[int32]string{1: "a:1", 2: "b:2"},
			partitions: map[topicPartition]*sarama.PartitionMetadata{at: {Leader: leader, Replicas: []int32{1, 2, 3}, Isr: isr}},
			required:   map[string]string{"t": "2"},
		}
	}
	alone := partition(1, 1)
	alone.partitions[at].Replicas = []int32{1}
	throttled := partition(1, 1, 2)
	throttled.throttled = true
	unknown := partition(1, 1, 2)
	unknown.topics = map[string]sarama.KError{"t": sarama.ErrUnknownTopicOrPartition}
	for _, tc := range []struct {
		view clusterView
		says string
	}{
		{partition(1, 1, 2, 3), "in-sync replica (topic t, partition 3 is on brokers 1, 2, 3)"},
		{partition(1, 1), "1 of 3 replicas of topic t, partition 3 are in sync, and min.insync.replicas is 2"},
		{alone, "its disk or is overloaded"},
		{partition(2, 1, 2), "no longer leads topic t, partition 3: broker 2 at b:2 does"},
		{partition(noLeader, 2), "no longer leads topic t, partition 3, and no other broker does"},
		{throttled, "a quota is used up"},
		{unknown, "UNKNOWN_TOPIC_OR_PARTITION"},
		{clusterView{}, "it does not know topic t, partition 3"},
	} {
		if got := tc.view.explainSilence(q); !strings.Contains(got.text, tc.says) || got.state == "" {
			t.Errorf("%+v, want %q", got, tc.says)
		}
	}
}
