package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A deadLetterLine is a line of dead-letter list --json.
type deadLetterLine struct {
	Partition  int    `json:"partition"`
	Offset     int    `json:"offset"`
	Topic      string `json:"topic"`
	Table      string `json:"table"`
	ID         string `json:"id"`
	Key        string `json:"key"`
	Reason     string `json:"reason"`
	Slot       string `json:"slot"`
	CommitLSN  string `json:"commit_lsn"`
	ValueBytes int    `json:"value_bytes"`
	Value      string `json:"value"`
	ResentAt   string `json:"resent_at"`
	Truncated  string `json:"truncated"`
	Timestamp  time.Time
}

// A deadLetterRig is a rig with a dead-letter topic. It reads that topic with the binary.
type deadLetterRig struct {
	*rig.Rig
	dead string
}

func (m *deadLetterRig) deadLetters(t *testing.T, more ...string) []deadLetterLine {
	t.Helper()
	out, code := rig.Command(t, append([]string{"dead-letter", "list", "-c", m.Config, "--json"}, more...)...)
	if code != 0 {
		t.Fatalf("list: exit code %d\n%s", code, out)
	}
	var all []deadLetterLine
	for line := range strings.Lines(out) {
		var l deadLetterLine
		rig.Must(t, json.Unmarshal([]byte(line), &l))
		all = append(all, l)
	}
	return all
}

// demandOutput runs a verb of dead-letter, and demands its exit code and a text in its output.
func (m *deadLetterRig) demandOutput(t *testing.T, code int, want string, verb ...string) string {
	t.Helper()
	out, got := rig.Command(t, append([]string{"dead-letter", verb[0], "-c", m.Config}, verb[1:]...)...)
	if got != code || !strings.Contains(out, want) {
		t.Errorf("%v: exit code %d, want %d and %q:\n%s", verb, got, code, want, out)
	}
	return out
}

// route configures where events go, and where bad records.
func (m *deadLetterRig) route(t *testing.T, topic string) {
	t.Helper()
	m.Config = rig.WriteConfig(t, m.DB.DSN, m.Kafka.Addrs[0], m.Slot, topic, "on_bad_record: dead-letter\ndead_letter_topic: "+m.dead)
}

// deadLetters prepares a topic with a row that is no record, and a record that is too large.
func deadLetters(t *testing.T) (m *deadLetterRig, row, large string) {
	t.Helper()
	cluster := kafkatest.Broker(t)
	m = &deadLetterRig{Rig: rig.NewOn(t, rig.Database(t), cluster)}
	m.dead = cluster.Topic(t, 2, map[string]string{"max.message.bytes": "10000000"})
	m.route(t, "${route}")
	process := m.Run(t)
	conn := m.Connect(t)
	insert := func(topic, payload string) string {
		return rig.Ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES (gen_random_uuid(), $1, 'k', 'T', $2::jsonb, '{"tenant": "t"}') RETURNING id::text`, topic, payload)
	}
	row = insert("no such topic!", `{"n": 1}`)
	large = insert(m.Topic, largePayload)
	m.Confirmed(t)
	process.Terminate(t)
	return m, row, large
}

var largePayload = `{"big": "` + strings.Repeat("x", 2_000_000) + `"}`

// A transaction of another producer is open in the dead-letter topic. Each verb says which partition it cannot read.
func TestDeadLettersBehindAnOpenTransaction(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	cluster := kafkatest.Broker(t)
	m := &deadLetterRig{Rig: rig.NewOn(t, rig.Database(t), cluster), dead: cluster.Topic(t, 2, nil)}
	m.route(t, "${route}")
	other := hide(t, cluster, m.dead, 2)
	process := m.Run(t)
	m.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'no such topic!', 'k', 'T', '{}')`)
	m.Confirmed(t)
	process.Terminate(t)

	hidden := []string{}
	for partition := range 2 {
		hidden = append(hidden, fmt.Sprintf("a transaction is open in partition %d of topic %s since offset 0, and records from there on cannot be read before it ends", partition, m.dead))
	}
	for _, verb := range [][]string{{"list"}, {"list", "--json"}, {"resend", "--all", "--dry-run"}, {"resend", "--all"}} {
		out := m.demandOutput(t, 0, "warning: "+hidden[0], verb...)
		if !strings.Contains(out, "warning: "+hidden[1]) {
			t.Errorf("%v: the other partition is not named:\n%s", verb, out)
		}
	}
	m.demandOutput(t, 2, hidden[0], "show", "0:0")
	rig.Must(t, other.EndTransaction(t.Context(), kgo.TryAbort))
	if out := m.demandOutput(t, 0, "1 dead letter", "list"); strings.Contains(out, "warning") {
		t.Errorf("after the end of the transaction:\n%s", out)
	}
}

// What was put aside is listed and shown with its bytes.
func TestDeadLetterListAndShow(t *testing.T) {
	t.Parallel()
	m, row, large := deadLetters(t)
	all := m.deadLetters(t)
	if len(all) != 2 {
		t.Fatalf("%d dead letters, want 2: %+v", len(all), all)
	}
	asRow, asRecord := all[0], all[1]
	if asRow.ID != row || asRow.Table != "public.outbox" || asRow.Key != "k" || asRow.Topic != "" || !strings.Contains(asRow.Reason, "topic name") {
		t.Errorf("the row: %+v", asRow)
	}
	if asRecord.ID != large || asRecord.Topic != m.Topic || asRecord.ValueBytes != len(largePayload) || asRecord.Slot != m.Slot || !strings.HasPrefix(asRecord.CommitLSN, "0/") {
		t.Errorf("the record: %+v", asRecord)
	}
	if got := m.deadLetters(t, "--topic="+m.Topic, "--reason=message_too_large", "--since=1h", "--limit=1", "--resent"); len(got) != 1 || got[0].ID != large {
		t.Errorf("all filters: %+v", got)
	}
	for _, filter := range []string{"--topic=nobody", "--reason=nothing", "--since=2099-01-01"} {
		if got := m.deadLetters(t, filter); len(got) > 0 {
			t.Errorf("%s: %+v", filter, got)
		}
	}
	list := m.demandOutput(t, 0, "2 dead letters", "list")
	for _, want := range []string{row, large, "MESSAGE_TOO_LARGE", "key k", m.Slot} {
		if !strings.Contains(list, want) {
			t.Errorf("list does not contain %q:\n%s", want, list)
		}
	}
	at := fmt.Sprintf("%d:%d", asRecord.Partition, asRecord.Offset)
	if out := m.demandOutput(t, 0, "id: "+large, "show", at); !strings.Contains(out, "--raw writes all") || !strings.Contains(out, "tenant: t") || len(out) > 10_000 {
		t.Errorf("show prints %d bytes:\n%.5000s", len(out), out)
	}
	if out := m.demandOutput(t, 0, "", "show", at, "--raw"); out != largePayload {
		t.Errorf("show --raw writes %d bytes", len(out))
	}
	var shown deadLetterLine
	rig.Must(t, json.Unmarshal([]byte(m.demandOutput(t, 0, "", "show", at, "--json")), &shown))
	if shown.Value != largePayload {
		t.Errorf("show --json has %d bytes", len(shown.Value))
	}

	var offsets kadm.Offsets
	offsets.AddOffset(m.dead, int32(asRecord.Partition), int64(asRecord.Offset)+1, -1)
	_, err := m.Kafka.Admin(t).DeleteRecords(t.Context(), offsets)
	rig.Must(t, err)
	m.demandOutput(t, 2, "it has expired; partition", "show", at)
	m.demandOutput(t, 2, "as in 0:42", "show", "seven")
	m.demandOutput(t, 20, "can be reached", "list", "--brokers", "127.0.0.1:1", "--set", "startup_timeout=1s")
}

// What is sent again is what the relay would have sent, says so, and is sent once.
func TestDeadLetterResend(t *testing.T) {
	t.Parallel()
	m, row, large := deadLetters(t)
	deadLetters := m.deadLetters(t)
	before := len(m.Kafka.ReadAll(t, m.Topic))
	m.demandOutput(t, 2, "--all", "resend")

	// Nothing is corrected yet.
	m.demandOutput(t, 14, "would be rejected again: 1 dead letter", "resend", "--all", "--dry-run")
	if out := m.demandOutput(t, 14, "2 rejected", "resend", "--all"); !strings.Contains(out, "MESSAGE_TOO_LARGE") || !strings.Contains(out, "topic name") {
		t.Errorf("the reasons are not told:\n%s", out)
	}
	if left := m.deadLetters(t); len(left) != 2 {
		t.Errorf("%d dead letters are left, want 2", len(left))
	}
	m.demandOutput(t, 14, "--create --topic nobody --partitions 6; or set sink.kafka.create_topics.partitions", "resend", "--all", "--set", "outbox.topic=nobody")

	_, err := m.Kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: new("5000000")}}, m.Topic)
	rig.Must(t, err)
	corrected := []string{"resend", "--all", "--set", "outbox.topic=" + m.Topic}
	m.route(t, m.Topic)
	wait.For(t, "the limit to be raised", func() bool {
		m.demandOutput(t, 0, "2 would be resent, 0 rejected", append(corrected, "--dry-run")...)
		out, code := rig.Command(t, "dead-letter", "resend", "-c", m.Config, fmt.Sprintf("%d:%d", deadLetters[1].Partition, deadLetters[1].Offset))
		return code == 0 && strings.Contains(out, "1 resent, 0 rejected")
	})
	m.demandOutput(t, 0, "1 resent, 0 rejected, 1 were resent before", corrected...)
	m.demandOutput(t, 0, "0 resent, 0 rejected, 2 were resent before", corrected...)
	if left := m.deadLetters(t); len(left) != 0 {
		t.Errorf("dead letters are left: %+v", left)
	}
	if all := m.deadLetters(t, "--resent"); len(all) != 2 || all[0].ResentAt == "" || all[1].ResentAt == "" {
		t.Errorf("dead letters: %+v", all)
	}
	got := m.Kafka.ReadAll(t, m.Topic)
	if len(got) != before+2 {
		t.Fatalf("%d records, want %d", len(got), before+2)
	}
	byID := map[string]*kgo.Record{}
	for _, rec := range got {
		byID[rig.Header(rec, "id")] = rec
	}
	for i, want := range []struct{ id, payload string }{{row, `{"n": 1}`}, {large, largePayload}} {
		rec := byID[want.id]
		if rec == nil {
			t.Fatalf("%s did not arrive", want.id)
		}
		from := fmt.Sprintf("%s/%d:%d", m.dead, deadLetters[i].Partition, deadLetters[i].Offset)
		var headers []string
		for _, h := range rec.Headers {
			headers = append(headers, h.Key+"="+string(h.Value))
		}
		if diff := cmp.Diff([]string{"id=" + want.id, "eventType=T", "lsn=" + deadLetters[i].CommitLSN + ":0", "tenant=t", "resent=true", "resent_from=" + from}, headers); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if string(rec.Key) != "k" || string(rec.Value) != want.payload || !rec.Timestamp.Equal(deadLetters[i].Timestamp) {
			t.Errorf("key %s, value of %d bytes, timestamp %v, want %v", rec.Key, len(rec.Value), rec.Timestamp, deadLetters[i].Timestamp)
		}
	}
	m.demandOutput(t, 0, "2 resent, 0 rejected", append(corrected, "--again")...)
	if n := len(m.Kafka.ReadAll(t, m.Topic)); n != before+4 {
		t.Errorf("%d records after --again, want %d", n, before+4)
	}
}
