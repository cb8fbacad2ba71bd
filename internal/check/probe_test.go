package check

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// ofProbe returns the conditions that only a probe checks.
func ofProbe(conditions []Condition) []Condition {
	return slices.DeleteFunc(conditions, func(c Condition) bool { return c.Name != "older writer" && c.Name != "probe topic" })
}

// wantNoProbeTopic fails the test if a probe topic still exists.
func wantNoProbeTopic(t *testing.T, k *kafkatest.Cluster) {
	t.Helper()
	admin := k.Admin(t)
	wait.For(t, "no topic of a probe is left", func() bool { // brokers learn of a deletion with a delay
		topics, err := admin.ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(topics.Names(), func(name string) bool { return strings.Contains(name, ".probe-") })
	})
}

// answerFrom makes a broker respond with code to all writes from the nth on, without storing them.
func answerFrom(nth int, code int16) func(k *kafkatest.FakeCluster) {
	return func(k *kafkatest.FakeCluster) {
		writes := 0
		k.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.Control.KeepControl()
			if writes++; writes < nth {
				return nil, nil, false
			}
			resp := kafkatest.Accept(req.(*kmsg.ProduceRequest))
			resp.Topics[0].Partitions[0].ErrorCode = code
			return resp, nil, true
		})
	}
}

// refuse makes a broker reject requests about probe topics.
func refuse(key kmsg.Key) func(k *kafkatest.FakeCluster) {
	return func(k *kafkatest.FakeCluster) {
		k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.TopicAuthorizationFailed, Count: -1, When: func(req kmsg.Request) bool {
			return strings.Contains(string(req.AppendTo(nil)), ".probe-")
		}})
	}
}

// A probe reports whether the broker rejects an older writer. It deletes its topic.
func TestProbe(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	for _, tt := range []struct {
		name     string
		broker   func(k *kafkatest.FakeCluster)
		want     []Condition // Found and Fix are parts of the reported texts
		leftover bool
	}{
		{name: "as Apache Kafka", broker: func(*kafkatest.FakeCluster) {}, want: []Condition{
			{Name: "older writer", State: Met, Found: "rejects records of an older writer"},
			{Name: "probe topic", State: Met, Found: " was deleted"},
		}},
		{name: "accepts the older", broker: answerFrom(1, 0), want: []Condition{
			{Name: "older writer", State: Doubt, Found: "only the relay's own fence limits how many records are duplicated out of order", Fix: "INVALID_PRODUCER_EPOCH"},
			{Name: "probe topic", State: Met, Found: " was deleted"},
		}},
		{name: "rejects the newer", broker: answerFrom(2, kerr.InvalidProducerEpoch.Code), want: []Condition{
			{Name: "older writer", State: Failed, Found: "a standby that takes over cannot write", Fix: `set position_topic: ""`},
			{Name: "probe topic", State: Met, Found: " was deleted"},
		}},
		{name: "no right to create", broker: refuse(kmsg.CreateTopics), want: []Condition{
			{Name: "probe topic", State: Failed, Found: "TOPIC_AUTHORIZATION_FAILED", Fix: "--resource-pattern-type prefixed --topic POSITIONS.probe-"},
		}},
		{name: "no right to delete", leftover: true, broker: refuse(kmsg.DeleteTopics), want: []Condition{
			{Name: "older writer", State: Met},
			{Name: "probe topic", State: Doubt, Found: "could not be deleted: ", Fix: "kafka-topics.sh --bootstrap-server "},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := kafkatest.Fake(t, kfake.NumBrokers(1))
			r := whole(t, srv, fake.Cluster)
			r.change = func(c *Config) { c.Probe = true }
			tt.broker(fake)
			got := ofProbe(Run(t.Context(), r.config(t)))
			if !slices.EqualFunc(tt.want, got, func(want, got Condition) bool {
				want.Fix = strings.Replace(want.Fix, "POSITIONS", r.positions, 1)
				return want.Name == got.Name && want.State == got.State && strings.Contains(got.Found, want.Found) &&
					strings.Contains(got.Fix, want.Fix) && (want.Fix != "") == (got.Fix != "")
			}) {
				t.Errorf("got %+v", got)
			}
			if !tt.leftover {
				wantNoProbeTopic(t, fake.Cluster)
			}
		})
	}
	t.Run("stopped in the middle", func(t *testing.T) {
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		r.change = func(c *Config) { c.Probe = true }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		writes := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: func(kmsg.Request) bool {
			cancel()
			return true
		}})
		got := ofProbe(Run(ctx, r.config(t)))
		if writes.Hits() == 0 || len(got) != 2 || got[0].State != Failed || got[1].State != Met {
			t.Errorf("%d writes, got %+v", writes.Hits(), got)
		}
		wantNoProbeTopic(t, fake.Cluster)
	})
	t.Run("without a position topic", func(t *testing.T) {
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		r.set("position_topic", "")
		r.change = func(c *Config) { c.Probe = true }
		got := ofProbe(Run(t.Context(), r.config(t)))
		if len(got) != 1 || got[0].State != Doubt || got[0].Fix != "set position_topic" {
			t.Errorf("got %+v", got)
		}
	})
}
