package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// With on_bad_record=dead-letter, the relay sends rows that cannot become records, and records that Kafka
// rejects, to the dead-letter topic, with their bytes, origin and reason. Every other row arrives once and
// in order, also if it has the same key.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Broker(t)
	r := rig.NewOn(t, rig.Database(t), cluster)
	dead := cluster.Topic(t, 1, map[string]string{"max.message.bytes": "10000000"})
	process := r.Run(t, "--set", "outbox.topic=${route}", "--set", "on_bad_record=dead-letter", "--set", "dead_letter_topic="+dead)
	conn := r.Connect(t)
	insert := func(topic, key, payload string) (id string) {
		return rig.Ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), $1, $2, 'T', $3::jsonb) RETURNING id::text`, topic, key, payload)
	}
	large := `{"big": "` + strings.Repeat("x", 2_000_000) + `"}`
	want := map[string]string{} // reasons, by id
	var good []string
	for i := range 20 {
		for _, key := range []string{"a", "b"} {
			good = append(good, insert(r.Topic, key, fmt.Sprintf(`{"n": %d}`, i)))
		}
		switch i % 5 {
		case 1:
			want[insert("no such topic!", "a", `{"bad": true}`)] = "topic name"
		case 3:
			want[insert(r.Topic, "a", large)] = "max.message.bytes"
		}
	}
	r.Confirmed(t)
	wait.For(t, "four of each kind to be counted", func() bool {
		_, metrics := process.Ask(t, "metrics")
		return strings.Contains(metrics, `reason="row"} 4`) && strings.Contains(metrics, `reason="broker"} 4`)
	})
	process.Terminate(t)

	var got []string
	for _, key := range []string{"a", "b"} {
		n := 0
		for _, rec := range cluster.ReadAll(t, r.Topic) {
			if string(rec.Key) != key {
				continue
			}
			if string(rec.Value) != fmt.Sprintf(`{"n": %d}`, n) {
				t.Errorf("key %s: %s, want number %d", key, rec.Value, n)
			}
			n++
			got = append(got, rig.Header(rec, "id"))
		}
	}
	if len(got) != len(good) {
		t.Errorf("%d records, want %d", len(got), len(good))
	}
	deadLetters := cluster.ReadAll(t, dead)
	if len(deadLetters) != len(want) {
		t.Errorf("%d dead letters, want %d", len(deadLetters), len(want))
	}
	for _, rec := range deadLetters {
		id := rig.Header(rec, "id")
		if id == "" {
			id = rig.Header(rec, "dead_letter_column_id")
		}
		reason := want[id]
		delete(want, id)
		if reason == "" || !strings.Contains(rig.Header(rec, "dead_letter_reason"), reason) {
			t.Errorf("dead letter of %q: reason %q, want one with %q", id, rig.Header(rec, "dead_letter_reason"), reason)
		}
		if v := string(rec.Value); string(rec.Key) != "a" || v != large && v != `{"bad": true}` {
			t.Errorf("dead letter of %q: key %s, value of %d bytes", id, rec.Key, len(rec.Value))
		}
		if !strings.HasPrefix(rig.Header(rec, "dead_letter_lsn"), "0/") || rig.Header(rec, "dead_letter_index") != "0" || rig.Header(rec, "dead_letter_slot") != r.Slot {
			t.Errorf("dead letter of %q: %v", id, rec.Headers)
		}
	}
}

// If a row is too large even for the dead-letter topic, the relay sends only what identifies the row, and
// continues.
func TestDeadLetterTruncated(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	r := rig.NewOn(t, rig.Database(t), kafkatest.Broker(t))
	m := &deadLetterRig{Rig: r, dead: r.Kafka.Topic(t, 1, nil)}
	m.route(t, "${route}")
	process := m.Run(t)
	conn := m.Connect(t)
	insert := func(topic string, size int) string {
		return rig.Ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), $1, 'k', 'T', jsonb_build_object('big', repeat('x', $2))) RETURNING id::text`, topic, size)
	}
	asRecord, asRow := insert(m.Topic, 2_000_000), insert("no such topic!", 3_000_000)
	good := insert(m.Topic, 1)
	m.Confirmed(t)
	process.Logged(t, "dead letters truncated")
	process.Terminate(t)
	if got := m.Kafka.ReadAll(t, m.Topic); len(got) != 1 || rig.Header(got[0], "id") != good {
		t.Errorf("the topic has %d records", len(got))
	}
	deadLetters := m.deadLetters(t)
	if len(deadLetters) != 2 {
		t.Fatalf("dead letters %+v", deadLetters)
	}
	for _, want := range []deadLetterLine{ // in either order, because the relay first sends one of them as a record
		{ID: asRecord, Topic: m.Topic, Key: "k", Reason: "MESSAGE_TOO_LARGE", Truncated: "value: 2000011 bytes"},
		{ID: asRow, Table: "public.outbox", Key: "k", Reason: "topic name", Truncated: "value: 3000011 bytes, column"},
	} {
		got := deadLetters[max(0, slices.IndexFunc(deadLetters, func(l deadLetterLine) bool { return l.ID == want.ID }))]
		if got.ID != want.ID || got.Topic != want.Topic || got.Table != want.Table || got.Key != want.Key || !strings.Contains(got.Reason, want.Reason) ||
			!strings.HasPrefix(got.Truncated, want.Truncated) || !strings.HasPrefix(got.CommitLSN, "0/") || got.Slot != m.Slot {
			t.Errorf("dead letter %+v, want %+v", got, want)
		}
		m.demandOutput(t, 0, want.Truncated, "show", fmt.Sprintf("%d:%d", got.Partition, got.Offset))
	}
	m.demandOutput(t, 0, deadLetters[1].Truncated, "list")
	m.demandOutput(t, 14, "outbox-cdc replay -c ", "resend", "--all")
}

// The relay stops if the dead-letter topic rejects even a truncated dead letter.
func TestDeadLetterRefused(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	cluster := kafkatest.Broker(t)
	r := rig.NewOn(t, rig.Database(t), cluster)
	dead := cluster.Topic(t, 1, map[string]string{"max.message.bytes": "300"})
	process := r.Run(t, "--set", "on_bad_record=dead-letter", "--set", "dead_letter_topic="+dead)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('big', repeat('x', 2000000)))`)
	if code := process.Exit(t); code != 14 {
		t.Errorf("exit code %d, want 14", code)
	}
	if out := process.Stderr.String(); !strings.Contains(out, dead) {
		t.Errorf("the topic is not named:\n%s", out)
	}
}

// Rows for missing topics, many more than the window holds, block neither other rows nor a stop of
// the relay. After a topic is created, its dead letters can be resent to it.
func TestDeadLetterMissingTopics(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	r := rig.NewOn(t, rig.Database(t), kafkatest.Broker(t))
	m := &deadLetterRig{Rig: r, dead: r.Kafka.Topic(t, 1, nil)}
	m.route(t, "${route}")
	process := m.Run(t, "--set", "drain_timeout=1h") // a relay that waits for the topics would not stop
	arrived := make(chan struct{}, 1)
	m.Kafka.Collect(t, func(*kgo.Record) { arrived <- struct{}{} }, m.Topic)
	missing := m.Topic + "-missing-"
	m.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), '`+missing+`' || n, 'k', 'T', to_jsonb(repeat('x', 500000)) FROM generate_series(1, 30) n`)
	m.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), '`+m.Topic+`', 'k', 'T', '{}')`)
	wait.Receive(t, "a row behind them", arrived)
	process.Terminate(t)
	deadLetters := m.deadLetters(t)
	if len(deadLetters) != 30 {
		t.Fatalf("%d dead letters", len(deadLetters))
	}
	again := deadLetters[slices.IndexFunc(deadLetters, func(l deadLetterLine) bool { return l.Topic == missing+"7" })]
	if !strings.Contains(again.Reason, "UNKNOWN_TOPIC_OR_PARTITION") || again.Key != "k" {
		t.Errorf("dead letter %+v", again)
	}
	m.Kafka.CreateTopic(t, missing+"7", 1, nil)
	m.demandOutput(t, 0, "", "resend", fmt.Sprintf("%d:%d", again.Partition, again.Offset))
	if got := m.Kafka.ReadAll(t, missing+"7"); len(got) != 1 || rig.Header(got[0], "id") != again.ID {
		t.Errorf("the topic has %d records", len(got))
	}
}
