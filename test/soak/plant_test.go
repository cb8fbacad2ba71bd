package soak

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/brokertest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/plant"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A mistake is a bug for the source code of a sink, or of what the sinks share.
type mistake struct {
	name   string
	over   func(*testing.T) *brokertest.Broker
	edits  []plant.Edit
	breaks map[Attack]int                         // nil: overWeights
	before func(context.Context, *pgx.Conn) error // called before the relay is restarted
	want   []delivery.Kind                        // one of these must be found
}

func mistakes() []mistake {
	missing := []delivery.Kind{delivery.Lost, delivery.Torn, delivery.Gap, BrokenRun, delivery.OutOfOrder, Never}
	twice := []delivery.Kind{delivery.Duplicate}
	kills, cuts := map[Attack]int{RelayKill: 1}, map[Attack]int{CutBroker: 1}
	return []mistake{
		{name: "a failed record counts as stored", over: brokertest.Webhook, want: missing, edits: []plant.Edit{
			plant.In("sink/lane/outcome.go", "	f.stored = max(0, min(f.stored, len(f.Records)))\n", "	f.stored = len(f.Records)\n"),
		}},
		{name: "records overtake one of their key that waits", over: brokertest.Webhook, want: missing, edits: []plant.Edit{
			plant.In("sink/lane/lane.go", "if l.hash == hash && l.destination == d", "if l.hash == hash && l.destination != d"),
		}},
		{name: "a record counts as stored before the response", over: brokertest.Webhook, want: append(missing, Early), edits: []plant.Edit{
			plant.In("sink/webhook/transport.go", "		if err := t.client.deliver(ctx, r); err != nil {\n", "		r.Done(1, nil)\n		if err := t.client.deliver(ctx, r); err != nil {\n"),
		}},
		{name: "the names of headers are in a buffer that is used again", over: brokertest.Webhook, want: []delivery.Kind{delivery.Altered}, edits: []plant.Edit{
			plant.In("sink/lane/entry.go", "			name = strings.Clone(name)\n", "			_ = strings.Clone\n"),
		}},
		{name: "each process has a position file of its own", over: brokertest.Webhook, want: missing, breaks: kills, before: recreateSlot, edits: []plant.Edit{
			plant.In("internal/relay/position/filestore/store.go", "	return f.retry(ctx, f.explainDenial, func(ctx context.Context) error {\n", "	f.path = fmt.Sprint(f.path, os.Getpid())\n	return f.retry(ctx, f.explainDenial, func(ctx context.Context) error {\n"),
		}},
		{name: "messages have no id", over: brokertest.JetStream, want: twice, breaks: kills, edits: []plant.Edit{
			plant.In("sink/jetstream/message.go", `if id := messageID(r); id != "" {`, `if id := messageID(r); id == "-" {`),
		}},
		{name: "an error of JetStream counts as an acknowledgement", over: brokertest.JetStream, want: append(missing, Early), breaks: cuts, edits: []plant.Edit{
			plant.In("sink/jetstream/transport.go", "		r.Done(0, outcomeOf(err))\n", "		r.Done(1, nil)\n"),
		}},
		{name: "a failed entry of a batch counts as stored", over: brokertest.SQS, want: append(missing, Early), edits: []plant.Edit{
			plant.In("sink/sqs/send.go", "			outcomes[i] = c.outcome(failure, &p.message)\n", "			_ = c.outcome(failure, &p.message)\n"),
		}},
		{name: "deduplication ids are those of the process", over: brokertest.SQS, want: twice, breaks: kills, edits: []plant.Edit{
			plant.In("sink/sqs/message.go", "	return identifier(id)\n}", "	return identifier(id + token)\n}"),
		}},
		{name: "entries have no id", over: brokertest.Redis, want: twice, breaks: kills, edits: []plant.Edit{
			plant.In("sink/redisstreams/entry.go", "	if p.IsZero() {\n		return b\n", "	if !p.IsZero() {\n		return b\n"),
		}},
		{name: "records count as stored before the reply", over: brokertest.Redis, want: append(missing, Early), edits: []plant.Edit{
			plant.In("sink/redisstreams/transport.go", "	for _, r := range requests {\n		node, err :=", "	for _, r := range requests {\n		r.Done(len(r.Records), nil)\n		node, err :="),
		}},
		{name: "a lost message counts as confirmed", over: brokertest.RabbitMQ, want: missing, breaks: cuts, edits: []plant.Edit{
			plant.In("sink/rabbitmq/channel.go", "	case closed:\n		return lost\n", "	case closed:\n		return stored\n"),
		}},
		{name: "a message counts as confirmed before the confirm", over: brokertest.RabbitMQ, want: append(missing, Early), breaks: cuts, edits: []plant.Edit{
			plant.In("sink/rabbitmq/channel.go", "	f.confirm = confirm\n", "	f.confirm = confirm\n	c.settle(f, stored, nil)\n"),
		}},
	}
}

// The source code contains each text that a mistake replaces exactly once.
func TestPlantsFit(t *testing.T) {
	for _, m := range mistakes() {
		plant.RequireFit(t, m.name, m.edits)
	}
}

// The oracle finds each bug that is planted in a sink.
func TestPlants(t *testing.T) {
	need.FullRun(t, "it compiles the relay once for each mistake")
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "outbox-cdc")
			build := exec.CommandContext(t.Context(), "go", "build", "-overlay", plant.Overlay(t, m.edits), "-o", binary, rig.Module+"/cmd/outbox-cdc")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("compile: %v\n%s", err, out)
			}
			s := newSoak(t, soakConfig{over: m.over, binary: binary, before: m.before})
			if m.breaks == nil {
				m.breaks = overWeights(s.over, DefaultWeights())
			}
			s.run(t, rig.EnvInt(t, "OUTBOX_TEST_MUTATION_CYCLES", 200), m.breaks)
			found := s.found()
			i := slices.IndexFunc(found, func(v Violation) bool { return slices.Contains(m.want, v.Kind) })
			if i < 0 {
				t.Errorf("none of %v was found", m.want)
				s.complain(t)
				return
			}
			t.Logf("%d strikes, found %s", len(s.strikes), found[i].String())
		})
	}
}
