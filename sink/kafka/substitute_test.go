package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// substituteTo has records go to the topic dead, but those that were to go there.
func substituteTo(dead string) sink.Substitute {
	return func(r *sink.Record, refused *sink.RecordError) *sink.Record {
		if r.Topic == dead {
			return nil
		}
		r.Headers = append(r.Headers, sink.Header{Key: "from", Value: []byte(refused.Topic)}, sink.Header{Key: "why", Value: []byte(refused.Reason.Error())})
		r.Topic, r.Partition = dead, sink.AnyPartition
		return r
	}
}

// startSubstituted is newRig with a substitute.
func startSubstituted(t *testing.T, cfg Config, s sink.Substitute) *rig {
	t.Helper()
	j := new(journal)
	c := openClient(t, cfg, j.logger())
	return startRig(t, c, j, sink.WriterConfig{Substitute: s})
}

// TestSubstituteTooLarge: what is too large for its topic goes elsewhere, under its own
// sequence; the rest of its key arrives in order, and the producer ends only when the
// substitutes are acknowledged too.
func TestSubstituteTooLarge(t *testing.T) {
	for name, compression := range map[string]string{"found before sending": "none", "found by the broker": "lz4"} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.Broker(t)
			topic := k.Topic(t, 2, map[string]string{"max.message.bytes": "1000"})
			dead := k.Topic(t, 1, nil)
			r := startSubstituted(t, Config{Brokers: k.Addrs, Compression: compression}, substituteTo(dead))
			var want []string
			large := 0
			for i := range 200 {
				if i%7 == 3 {
					large++
					r.sendKeyed(topic, "key", fmt.Sprint(i, " ", incompressible(3000)))
					continue
				}
				want = append(want, fmt.Sprint(i))
				r.sendKeyed(topic, "key", want[len(want)-1])
			}
			r.mustDrain()
			var got []string
			for _, rec := range k.ReadAll(t, topic) {
				got = append(got, string(rec.Value))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			letters := k.ReadAll(t, dead)
			if len(letters) != large {
				t.Errorf("%d substitutes, want %d", len(letters), large)
			}
			for _, rec := range letters {
				h := rec.Headers
				if len(h) != 2 || string(h[0].Value) != topic || !strings.Contains(string(h[1].Value), "MESSAGE_TOO_LARGE") || len(rec.Value) < 3000 {
					t.Errorf("substitute with %d bytes, headers %v", len(rec.Value), h)
				}
			}
		})
	}
}

// TestSubstituteRejected: a record that only the broker can judge is isolated first.
func TestSubstituteRejected(t *testing.T) {
	k := kafkatest.Real(t)
	compacted := k.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	dead := k.Topic(t, 1, nil)
	r := startSubstituted(t, Config{Brokers: k.Addrs}, substituteTo(dead))
	var want []string
	for i := range 50 {
		rec := recordFor(compacted, 0, fmt.Sprint(i))
		if i%10 == 5 {
			rec.Key = nil
		} else {
			want = append(want, fmt.Sprint(i))
		}
		r.send(rec)
	}
	r.mustDrain()
	if got := values(k.ReadAll(t, compacted), 0); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := values(k.ReadAll(t, dead), 0); !slices.Equal(got, []string{"5", "15", "25", "35", "45"}) {
		t.Errorf("substitutes %q", got)
	}
}

// TestSubstituteInvalidTopic: records that wait for a topic that cannot exist all go
// elsewhere, and so do those that come later.
func TestSubstituteInvalidTopic(t *testing.T) {
	k := kafkatest.Real(t)
	dead := k.Topic(t, 1, nil)
	r := startSubstituted(t, Config{Brokers: k.Addrs}, substituteTo(dead))
	for i := range 5 {
		r.sendKeyed("not legal!", "key", fmt.Sprint(i))
	}
	r.waitAcked(5)
	r.sendKeyed("not legal!", "key", "later")
	r.mustDrain()
	if got := values(k.ReadAll(t, dead), 0); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "later"}) {
		t.Errorf("substitutes %q", got)
	}
}

// TestSubstituteForAnotherBroker is sent although nothing else is, and nobody asks for it.
func TestSubstituteForAnotherBroker(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		for node, topic := range []string{"t", "dead"} {
			if err := l.fake.MoveTopicPartition(topic, 0, int32(node)); err != nil {
				l.Fatal(err)
			}
		}
		j := new(journal)
		r := startRig(l, l.client(Config{}, j.logger()), j, sink.WriterConfig{Substitute: substituteTo("dead")})
		r.send(recordFor("dead", 0, "the topic is known"))
		r.waitAcked(1)
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
		r.send(recordFor("t", 0, "refused"))
		r.mustDrain()
	}, kfake.SeedTopics(1, "t", "dead"))
}

// TestSubstituteRefused: a substitute that is not taken either, and has none of its own,
// ends the producer.
func TestSubstituteRefused(t *testing.T) {
	k := kafkatest.Fake(t)
	k.CreateTopic(t, "t", 1, map[string]string{"max.message.bytes": "1000"})
	k.CreateTopic(t, "dead", 1, map[string]string{"max.message.bytes": "1000"})
	r := startSubstituted(t, Config{Brokers: k.Addrs}, substituteTo("dead"))
	r.sendKeyed("t", "key", strings.Repeat("x", 2000))
	err := r.waitRun()
	if err == nil || !strings.Contains(err.Error(), "record for topic dead") {
		t.Errorf("Run returns %v", err)
	}
	if len(r.failures) != 1 || len(r.acked) != 0 {
		t.Errorf("%d acknowledged, failures %v", len(r.acked), r.failures)
	}
}

// incompressible returns n letters that no codec makes much smaller.
func incompressible(n int) string {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + rng.IntN(64))
	}
	return string(b)
}
