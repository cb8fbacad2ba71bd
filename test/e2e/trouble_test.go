package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A relayStatus is the part of /status that shows problems.
type relayStatus struct {
	State, Reason string
	Ready         bool
	Source        struct{ Confirmed string }
	Verdict       struct{ Title, Why string }
	Lag           struct {
		Bytes   int
		Seconds float64
	}
	Sink struct {
		Stalled     float64
		StallReason string `json:"stall_reason"`
		LastError   string `json:"last_error"`
	}
	Failures []struct {
		Text     string
		ExitCode int `json:"exit_code"`
	}
}

func askStatus(t *testing.T, process *rig.Process) (s relayStatus) {
	t.Helper()
	_, body := process.Ask(t, "status")
	rig.Must(t, json.Unmarshal([]byte(body), &s))
	return s
}

// metric returns the value of a metric that has only the common labels.
func metric(t *testing.T, process *rig.Process, name string) float64 {
	t.Helper()
	_, body := process.Ask(t, "metrics")
	found := regexp.MustCompile(`(?m)^` + name + `\{[^}]*\} (\S+)$`).FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	rig.Must(t, err)
	return v
}

// The outbox is idle, Kafka is unreachable, and the relay loses its session. It acquires the slot again,
// and status, metrics and log say that it waits for Kafka.
func TestIdleRelayWithoutKafkaLosesItsSession(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until a stall counts as one")
	r, _, _, toKafka := rig.NewCut(t)
	process := r.Run(t)
	r.Deliver(t, 100)
	conn := r.Connect(t)
	pid := func() int {
		return rig.Ask[int](t, conn, "SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1", r.Slot)
	}
	before := pid()
	toKafka.Refuse()
	rig.Ask[bool](t, conn, "SELECT pg_terminate_backend($1)", before)
	wait.For(t, "the slot to be held again", func() bool { now := pid(); return now != 0 && now != before })
	unready(t, process, "waiting: the position store does not respond")
	wait.For(t, "the stall to be counted", func() bool { return metric(t, process, "outbox_cdc_sink_stalled_seconds") > 12 })
	s := askStatus(t, process)
	if s.State != string(relay.Waiting) || s.Verdict.Title != "Waiting for Kafka" || len(s.Failures) == 0 || s.Failures[0].ExitCode != exit.Sink ||
		!strings.Contains(s.Sink.LastError, "refused") || !strings.Contains(s.Sink.StallReason, "refused") {
		t.Errorf("status: %+v", s)
	}
	if told := runStatus(t, r, "--admin", process.AdminAt(t)); told.Healthy || told.Title != "Waiting for Kafka" || !told.Postgres.Slot.Active {
		t.Errorf("status: %+v", told)
	}
	for line, times := range map[string]int{"session ended": 1, "waiting for the source": 1, "waiting for the broker": 1, "kafka not reached yet": 0} {
		if n := process.Times(line); n != times {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, n, times, process.Stderr)
		}
	}
	// A position record that is on the way when Kafka goes makes no request of its own.
	if n := process.Times("kafka request failed, retrying"); n > 1 {
		t.Errorf("a request to Kafka that is retried is logged %d times:\n%s", n, process.Stderr)
	}
	toKafka.Accept()
	process.Ready(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// A missing topic and a dead broker are named as the cause, with exit code 1, from the first retry on. After the
// outage status judges by the present, however long the rows have waited.
func TestStatusNamesTheCause(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	r, fake, _, toKafka := rig.NewCut(t)
	process := r.Run(t, "--set", "outbox.topic=${route}")
	process.Ready(t)
	conn := r.Connect(t)
	insert := func(topic string) {
		rig.Ask[bool](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), $1, 'k', 'T', '{}') RETURNING true`, topic)
	}
	status := func(title, why string) (s statusOutput) {
		t.Helper()
		wait.For(t, "/status to say "+title+": "+why, func() bool {
			v := askStatus(t, process).Verdict
			return v.Title == title && strings.Contains(v.Why, why)
		})
		wait.For(t, "status to say the same", func() bool { // the position topic may be behind the other one
			s = runStatus(t, r, "--admin", process.AdminAt(t))
			return s.Title == title && strings.Contains(s.Why, why)
		})
		return s
	}
	topic := kafkatest.UniqueName(t)
	insert(topic)
	if s := status("Destination "+topic+" takes no records", ""); s.Healthy || s.Level != "bad" || !strings.Contains(s.Advice, "--create --topic "+topic) || !strings.Contains(s.Advice, "sink.kafka.create_topics") {
		t.Errorf("a missing topic: %+v", s)
	}
	fake.CreateTopic(t, topic, 1, nil)
	if s := status("Healthy", ""); !s.Healthy {
		t.Errorf("with the topic: %+v", s)
	}
	toKafka.Refuse()
	insert(topic)
	if s := status("Kafka does not acknowledge records", "refused"); s.Healthy || !strings.Contains(s.Why, "refused") {
		t.Errorf("without a broker: %+v", s)
	}
	toKafka.Accept()
	if s := status("Healthy", ""); !s.Healthy {
		t.Errorf("with the broker: %+v", s)
	}
	process.Terminate(t)
}

// If the position topic rejects writes, the slot does not advance, although every record is delivered.
// That is a stall of Kafka, and nothing shows the position as confirmed.
func TestPositionTopicTakesNoWrites(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until a stall counts as one")
	r, fake, _, _ := rig.NewCut(t)
	process := r.Run(t)
	r.Deliver(t, 100)
	fault := fake.Control.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: position.DefaultTopic, Err: kerr.TopicAuthorizationFailed, Count: -1,
	})
	before := askStatus(t, process)
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	unready(t, process, "Kafka has not acknowledged for")
	conn := r.Connect(t)
	slot := rig.Ask[string](t, conn, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.Slot)
	s := askStatus(t, process)
	if s.Verdict.Title != "Kafka does not acknowledge records" || !strings.Contains(s.Sink.StallReason, "position topic "+position.DefaultTopic+": TOPIC_AUTHORIZATION_FAILED") ||
		s.Source.Confirmed != slot || s.Lag.Bytes < 100_000 || s.Lag.Seconds < 9 {
		t.Errorf("status, with the slot at %s: %+v\nbefore: %+v", slot, s, before)
	}
	if stalled, lag := metric(t, process, "outbox_cdc_sink_stalled_seconds"), metric(t, process, "outbox_cdc_lag_bytes"); stalled < 9 || lag < 100_000 {
		t.Errorf("metrics: stalled for %g s, %g bytes behind", stalled, lag)
	}
	if told := runStatus(t, r, "--admin", process.AdminAt(t)); told.Healthy || told.Title != "Kafka does not acknowledge records" {
		t.Errorf("status: %+v", told)
	}
	fault.Remove()
	r.Confirmed(t)
	process.Ready(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
