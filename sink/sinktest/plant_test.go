package sinktest_test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/plant"
)

// A mistake is a bug for the source code of a sink, and the tests of the sink that must find it.
type mistake struct {
	name  string
	sink  string // its package below sink
	tests string // regular expression
	edits []plant.Edit
	want  string // regular expression that the output must match
}

func mistakes() []mistake {
	return []mistake{
		{
			"a record overtakes one of its key that is sent again", "lane", "^TestContract$/./^writing$", []plant.Edit{
				plant.In("sink/lane/lane.go", "if l.hash == hash && l.destination == d", "if l.hash == hash && l.destination != d"),
			}, "behind record [0-9]+ of the same key",
		},
		{
			"a message counts as stored before the PubAck", "jetstream", "^TestContract$/^writing$", []plant.Edit{
				plant.In("sink/jetstream/transport.go", "func(err error) { t.handle(ctx, l, r, err) })", "func(error) {})"),
				plant.In("sink/jetstream/transport.go", "	case err == nil:\n", "	case err == nil:\n		r.Done(1, nil)\n"),
			}, "is stored 0 times",
		},
		{
			"messages have no Nats-Msg-Id", "jetstream", "^TestOneCopyAcross", []plant.Edit{
				plant.In("sink/jetstream/message.go", `if id := messageID(r); id != "" {`, `if id := messageID(r); id == "-" {`),
			}, "is stored [2-9] times",
		},
		{
			"a message counts as stored before the confirm", "rabbitmq", "^TestHeldConfirm$", []plant.Edit{
				plant.In("sink/rabbitmq/channel.go", "	f.confirm = confirm\n	if", "	c.settle(f, stored, nil)\n	return true\n	if"),
			}, "without a confirm is acknowledged",
		},
		{
			"an unroutable message counts as stored", "rabbitmq", "^TestEqualMessages$", []plant.Edit{
				plant.In("sink/rabbitmq/channel.go", "		return returned\n", "		return stored\n"),
			}, "0 are rejected",
		},
		{
			"a pipeline without replies counts as stored", "redisstreams", "^TestContract$/^writing$", []plant.Edit{
				plant.In("sink/redisstreams/transport.go", "		fail(requests, t.failure(err))\n		return\n	}\n	var unknown", "		for _, r := range requests {\n			r.Done(len(r.Records), nil)\n		}\n		return\n	}\n	var unknown"),
			}, "is stored 0 times",
		},
		{
			"entries have no id of their own", "redisstreams", "^TestResends$", []plant.Edit{
				plant.In("sink/redisstreams/entry.go", "	if p.IsZero() {\n		return b\n", "	if p.IsZero() || p.CommitLSN > 0 {\n		return b\n"),
			}, "the stream has 1 2 3 1 2 3 4, want 1 2 3 4",
		},
		{
			"a failed entry of a batch counts as stored", "sqs", "^TestCodes$", []plant.Edit{
				plant.In("sink/sqs/send.go", "			outcomes[i] = c.outcome(failure, &p.message)\n", "			_ = c.outcome(failure, &p.message)\n"),
			}, "entry: ",
		},
		{
			"a batch without a response counts as stored", "sqs", "^TestContract$/^sqs$/^writing$", []plant.Edit{
				plant.In("sink/sqs/send.go", "		outcomes[i] = c.outcome(err, &p.message)\n	}\n	return outcomes\n}\n\n// try", "		_, _ = i, p\n	}\n	return outcomes\n}\n\n// try"),
			}, "is stored 0 times",
		},
		{
			"each attempt has a deduplication id of its own", "sqs", "^TestOneCopyAcrossLostResponses$", []plant.Edit{
				plant.In("sink/sqs/send.go", "	return &m.group, &m.duplication\n", "	return &m.group, aws.String(m.duplication + time.Now().Format(\"150405.000000000\"))\n"),
			}, "is stored [2-9] times",
		},
		{
			"a request without a response counts as delivered", "webhook", "^TestContract$/^HTTP_1/^writing$", []plant.Edit{
				plant.In("sink/webhook/transport.go", "			r.Done(0, err)\n", "			r.Done(1, nil)\n"),
			}, "is stored 0 times",
		},
		{
			"each attempt has an Idempotency-Key of its own", "webhook", "^TestTimeout$", []plant.Edit{
				plant.In("sink/webhook/headers.go", "	set(idempotencyHeader, id)\n", "	set(idempotencyHeader, id+time.Now().Format(\"150405.000000000\"))\n"),
			}, "id",
		},
	}
}

// The source code contains each text that a mistake replaces exactly once.
func TestPlantsFit(t *testing.T) {
	for _, m := range mistakes() {
		plant.RequireFit(t, m.name, m.edits)
	}
}

// The tests of each sink find a bug that is planted in it.
func TestPlants(t *testing.T) {
	need.FullRun(t, "it compiles a sink once for each mistake")
	for _, m := range mistakes() {
		t.Run(m.sink+"/"+m.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=5m", "-overlay", plant.Overlay(t, m.edits), "-run", m.tests, "../"+m.sink)
			out, err := cmd.CombinedOutput()
			switch found := regexp.MustCompile(`[^\n]*(?:` + m.want + `)[^\n]*`).Find(out); {
			case err == nil:
				t.Fatal("not found")
			case found == nil:
				t.Fatalf("%v, and not as wanted:\n%s", err, out)
			default:
				t.Logf("%s", found)
			}
		})
	}
}
