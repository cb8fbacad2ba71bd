package kafka

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// probe returns what only a probe finds.
func (i *inspected) probe(ctx context.Context, t *testing.T) []sink.Finding {
	t.Helper()
	i.use.Probe = true
	return slices.DeleteFunc(sinktest.Inspect(ctx, t, i.cfg, i.use), func(f sink.Finding) bool {
		return f.Condition != "older writer" && f.Condition != "probe topic"
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

// A probe finds out whether the broker rejects an older writer. It deletes its topic.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		broker   func(k *kafkatest.FakeCluster)
		want     []sink.Finding // Found and Fix are parts of the texts
		leftover bool
	}{
		{name: "as Apache Kafka", broker: func(*kafkatest.FakeCluster) {}, want: []sink.Finding{
			{Condition: "older writer", State: sink.Met, Found: "rejects records of an older writer"},
			{Condition: "probe topic", State: sink.Met, Found: " was deleted"},
		}},
		{name: "accepts the older", broker: answerFrom(1, 0), want: []sink.Finding{
			{Condition: "older writer", State: sink.Doubt, Found: "only the relay's own fence limits how many records are duplicated out of order", Fix: "INVALID_PRODUCER_EPOCH"},
			{Condition: "probe topic", State: sink.Met, Found: " was deleted"},
		}},
		{name: "rejects the newer", broker: answerFrom(2, kerr.InvalidProducerEpoch.Code), want: []sink.Finding{
			{Condition: "older writer", State: sink.Failed, Found: "a standby that takes over cannot write", Fix: `set position_topic: ""`},
			{Condition: "probe topic", State: sink.Met, Found: " was deleted"},
		}},
		{name: "no right to create", broker: refuse(kmsg.CreateTopics), want: []sink.Finding{
			{Condition: "probe topic", State: sink.Failed, Found: "TOPIC_AUTHORIZATION_FAILED", Fix: "--resource-pattern-type prefixed --topic POSITIONS.probe-"},
		}},
		{name: "no right to delete", leftover: true, broker: refuse(kmsg.DeleteTopics), want: []sink.Finding{
			{Condition: "older writer", State: sink.Met},
			{Condition: "probe topic", State: sink.Doubt, Found: "could not be deleted: ", Fix: "kafka-topics.sh --bootstrap-server "},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := kafkatest.Fake(t, kfake.NumBrokers(1))
			i := newInspected(t, fake.Cluster)
			tt.broker(fake)
			got := i.probe(sinktest.Context(t), t)
			if !slices.EqualFunc(tt.want, got, func(want, got sink.Finding) bool {
				want.Fix = strings.Replace(want.Fix, "POSITIONS", i.use.Positions, 1)
				return want.Condition == got.Condition && want.State == got.State && strings.Contains(got.Found, want.Found) &&
					strings.Contains(got.Fix, want.Fix) && (want.Fix != "") == (got.Fix != "")
			}) {
				t.Errorf("got %+v", got)
			}
			if !tt.leftover {
				fake.AwaitNoTopic(t, ".probe-")
			}
		})
	}
	t.Run("stopped in the middle", func(t *testing.T) {
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		i := newInspected(t, fake.Cluster)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		writes := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: func(kmsg.Request) bool {
			cancel()
			return true
		}})
		got := i.probe(ctx, t)
		if writes.Hits() == 0 || len(got) != 2 || got[0].State != sink.Failed || got[1].State != sink.Met {
			t.Errorf("%d writes, got %+v", writes.Hits(), got)
		}
		fake.AwaitNoTopic(t, ".probe-")
	})
	t.Run("without a position topic", func(t *testing.T) {
		i := newInspected(t, kafkatest.Fake(t, kfake.NumBrokers(1)).Cluster)
		i.use.Positions = ""
		got := i.probe(sinktest.Context(t), t)
		if len(got) != 1 || got[0].State != sink.Doubt || got[0].Fix != "set position_topic" {
			t.Errorf("got %+v", got)
		}
	})
}
