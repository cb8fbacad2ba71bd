package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestTopicNotCreated: log, status and check say in the broker's words why a topic cannot be created.
func TestTopicNotCreated(t *testing.T) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		r, fake := rig.NewFake(t)
		fake.Control.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.Control.KeepControl()
			asked := req.(*kmsg.CreateTopicsRequest)
			if !strings.HasSuffix(asked.Topics[0].Topic, ".order") {
				return nil, nil, false
			}
			res := asked.ResponseKind().(*kmsg.CreateTopicsResponse)
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode, topic.ErrorMessage = asked.Topics[0].Topic, kerr.InvalidTopicException.Code,
				new("Topic '"+asked.Topics[0].Topic+"' collides with existing topics: "+r.Topic+"_order")
			res.Topics = append(res.Topics, topic)
			return res, nil, true
		})
		topicCollides(t, r)
	})
	t.Run("broker", func(t *testing.T) {
		r := rig.NewOn(t, rig.Database(t), kafkatest.Real(t))
		r.Kafka.CreateTopic(t, r.Topic+"_order", 1, nil)
		topicCollides(t, r)
	})
}

// topicCollides delivers an event to a topic whose name differs from that of an existing one in a dot only.
func topicCollides(t *testing.T, r *rig.Rig) {
	t.Helper()
	const message = "collides with existing topic"
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic+".${route}", "sink.kafka.create_topics.partitions: 1\n")
	process := r.Run(t)
	admin := process.AdminAt(t)
	insertNumbers(t, r, 1)
	process.Logged(t, message)
	wait.For(t, "the relay's verdict to say it", func() bool { return strings.Contains(askStatus(t, process).Verdict.Why, message) })
	if s := runStatus(t, r, "--admin", admin); s.Healthy || !strings.Contains(s.Why, message) {
		t.Errorf("status: %+v", s)
	}
	if out, code := rig.Command(t, "check", "-c", r.Config); code == 0 || !strings.Contains(out, message) {
		t.Errorf("check: exit code %d:\n%s", code, out)
	}
	process.Kill(t)
}
