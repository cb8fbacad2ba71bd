package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// An inspected is a correct set-up: what a relay uses of a cluster, with topics that exist.
type inspected struct {
	cluster *kafkatest.Cluster
	cfg     Config
	use     sink.Use
}

func newInspected(t *testing.T, cluster *kafkatest.Cluster) *inspected {
	t.Helper()
	return &inspected{cluster: cluster, cfg: Config{Brokers: cluster.Addrs}, use: sink.Use{
		Relay:        "orders",
		Destinations: []sink.Destination{{Name: cluster.Topic(t, 2, nil), Largest: &sink.Record{Key: []byte("o-1"), Value: []byte(`{"n": 1}`)}}},
		Positions:    cluster.Topic(t, 1, map[string]string{"cleanup.policy": "compact"}),
		Limits:       sink.Limits{Request: time.Minute, Whole: time.Minute},
	}}
}

// findings returns what is not met, by condition and object. It leaves out durability, which one broker cannot meet.
func (i *inspected) findings(t *testing.T) map[string]sink.Finding {
	t.Helper()
	names := []string{i.use.Destinations[0].Name, "TOPIC", i.use.Positions, "POSITIONS"}
	if i.use.DeadLetters != "" {
		names = append(names, i.use.DeadLetters, "DEAD")
	}
	unmet := make(map[string]sink.Finding)
	for _, f := range sinktest.Inspect(sinktest.Context(t), t, i.cfg, i.use) {
		if f.State != sink.Met && f.Condition != "durability" {
			unmet[strings.TrimSpace(f.Condition+" "+strings.NewReplacer(names...).Replace(f.Object))] = f
		}
	}
	return unmet
}

// A broken is a set-up with one mistake.
type broken struct {
	name   string
	breaks func(t *testing.T, i *inspected)
	title  string // condition and object of the finding
	state  sink.State
	says   string                           // part of Found
	mend   func(t *testing.T, i *inspected) // nil: run the Fix of the finding
}

// topicWith has the rows sent to a topic with a setting.
func topicWith(key, value string) func(*testing.T, *inspected) {
	return func(t *testing.T, i *inspected) {
		t.Helper()
		i.use.Destinations[0].Name = i.cluster.Topic(t, 2, map[string]string{key: value})
	}
}

// parking has the relay park keys, with a dead-letter topic.
func parking(settings map[string]string) func(*testing.T, *inspected) {
	return func(t *testing.T, i *inspected) {
		t.Helper()
		i.use.DeadLetters, i.use.Parks = i.cluster.Topic(t, 2, settings), true
	}
}

var brokenTopics = []broken{
	{name: "no topic", breaks: func(t *testing.T, i *inspected) {
		i.use.Destinations[0].Name = kafkatest.UniqueName(t)
		i.cluster.DeleteTopics(t, i.use.Destinations[0].Name)
	}, title: "topic TOPIC", state: sink.Failed, says: "does not exist"},
	{name: "more in sync than there are", breaks: topicWith("min.insync.replicas", "9"), title: "min.insync.replicas TOPIC", state: sink.Doubt, says: "9, but the topic has only "},
	{name: "compacted topic and no key", breaks: func(t *testing.T, i *inspected) {
		topicWith("cleanup.policy", "compact")(t, i)
		i.use.Destinations[0].Keyless = 1
	}, title: "cleanup.policy TOPIC", state: sink.Failed, says: "1 of the last rows have none"},
	{name: "compacted topic", breaks: topicWith("cleanup.policy", "compact"), title: "cleanup.policy TOPIC", state: sink.Doubt, says: "keeps only the last record"},
	{name: "position topic expires", breaks: func(t *testing.T, i *inspected) {
		i.use.Positions = i.cluster.Topic(t, 1, nil)
	}, title: "cleanup.policy POSITIONS", state: sink.Doubt, says: "expires"},
	{name: "parked records expire", breaks: parking(nil), title: "retention DEAD", state: sink.Doubt, says: "is lost"},
	{name: "parked records are compacted", breaks: parking(map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}), title: "cleanup.policy DEAD", state: sink.Failed, says: "they are lost"},
	{name: "no old timestamps", breaks: topicWith("message.timestamp.before.max.ms", "60000"), title: "message.timestamp.before.max.ms TOPIC", state: sink.Doubt, says: "1m0s"},
	{name: "many partitions", breaks: func(t *testing.T, i *inspected) {
		i.use.Destinations[0].Name = i.cluster.Topic(t, 600, nil)
		i.cfg.WindowBytes = 2 << 20
	}, title: "batches", state: sink.Doubt, says: "600 partitions share sink.kafka.window.bytes, 3495 bytes for each", mend: func(_ *testing.T, i *inspected) {
		i.cfg.WindowBytes = 8 << 20
	}},
}

// TestInspectTopics: for each mistake, Inspect finds its condition and no other, and the suggested fix works.
func TestInspectTopics(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Broker(t)
	for _, tt := range brokenTopics {
		t.Run(tt.name, func(t *testing.T) {
			i := newInspected(t, cluster)
			tt.breaks(t, i)
			found := i.findings(t)
			f := found[tt.title]
			if f.State != tt.state || !strings.Contains(f.Found, tt.says) || f.Fix == "" || len(found) != 1 {
				t.Fatalf("want %s with state %d and %q, got %+v", tt.title, tt.state, tt.says, found)
			}
			if tt.mend != nil {
				tt.mend(t, i)
			} else {
				command, _, _ := strings.Cut(f.Fix, "; or ")
				kafkatest.RunCommand(t, command)
			}
			wait.For(t, "the condition to be met after the fix", func() bool {
				found = i.findings(t)
				return found[tt.title].Found == ""
			}, func() any { return fmt.Sprintf("%+v", found) })
		})
	}
}

// Inspect names the other relays that use the position topic, until they have no value there any more.
func TestInspectNamesOtherRelays(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t).Cluster
	i := newInspected(t, cluster)
	client := cluster.Client(t)
	value := func(relay, value string) {
		t.Helper()
		rec := &kgo.Record{Topic: i.use.Positions, Key: []byte(relay + "/8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01")}
		if value != "" {
			rec.Value = []byte(value)
		}
		if err := client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	value(i.use.Relay, `{}`)
	value("payments", `{}`)
	value("gone", `{}`)
	value("gone", "")
	found := i.findings(t)
	if f := found["other relays POSITIONS"]; f.State != sink.Doubt || !strings.Contains(f.Found, "relays payments use the topic too") || f.Fix == "" || len(found) != 1 {
		t.Errorf("%+v", found)
	}
	value("payments", "")
	if found := i.findings(t); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// The finding about a broker that rejects the login begins with the reason: check shows the address before it.
func TestInspectRejectedLogin(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", password))
	cfg := Config{Brokers: k.Addrs, SASL: login("PLAIN", "alice", "wrong")}
	found := sinktest.Inspect(sinktest.Context(t), t, cfg, sink.Use{Limits: sink.Limits{Request: time.Minute, Whole: time.Minute}})
	if len(found) != 1 || found[0].Object != k.Addrs[0] || !strings.HasPrefix(found[0].Found, "the broker closed the connection during the SASL login") || found[0].Fix != loginAdvice {
		t.Errorf("%+v", found)
	}
}
