package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// With on_bad_record: dead-letter, rows that cannot become records and records that Kafka
// refuses are put aside with their bytes, where they came from and why, and everything else
// arrives once and in order, on their keys too.
func TestDeadLetters(t *testing.T) {
	cluster := kafkatest.Broker(t)
	r := newRig(t, pgtest.Database(t), cluster)
	dead := cluster.Topic(t, 1, map[string]string{"max.message.bytes": "10000000"})
	t.Setenv("OUTBOX_CDC_OUTBOX_TOPIC", "${route}")
	t.Setenv("OUTBOX_CDC_ON_BAD_RECORD", "dead-letter")
	t.Setenv("OUTBOX_CDC_DEAD_LETTER_TOPIC", dead)
	process := r.run(t)
	conn := r.connect(t)
	insert := func(topic, key, payload string) (id string) {
		return ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), $1, $2, 'T', $3::jsonb) RETURNING id::text`, topic, key, payload)
	}
	large := `{"big": "` + strings.Repeat("x", 2_000_000) + `"}`
	want := map[string]string{} // the reason by id
	var good []string
	for i := range 20 {
		for _, key := range []string{"a", "b"} {
			good = append(good, insert(r.topic, key, fmt.Sprintf(`{"n": %d}`, i)))
		}
		switch i % 5 {
		case 1:
			want[insert("no such topic!", "a", `{"bad": true}`)] = "topic name"
		case 3:
			want[insert(r.topic, "a", large)] = "max.message.bytes"
		}
	}
	r.confirmed(t, 30*time.Second)
	waitFor(t, 5*time.Second, "four of each kind to be counted", func() bool {
		_, metrics := process.ask(t, "metrics")
		return strings.Contains(metrics, `reason="row"} 4`) && strings.Contains(metrics, `reason="kafka"} 4`)
	})
	process.terminate(t)

	var got []string
	for _, key := range []string{"a", "b"} {
		n := 0
		for _, rec := range cluster.ReadAll(t, r.topic) {
			if string(rec.Key) != key {
				continue
			}
			if string(rec.Value) != fmt.Sprintf(`{"n": %d}`, n) {
				t.Errorf("key %s: %s, want number %d", key, rec.Value, n)
			}
			n++
			got = append(got, header(rec, "id"))
		}
	}
	if len(got) != len(good) {
		t.Errorf("%d records, want %d", len(got), len(good))
	}
	letters := cluster.ReadAll(t, dead)
	if len(letters) != len(want) {
		t.Errorf("%d dead letters, want %d", len(letters), len(want))
	}
	for _, rec := range letters {
		id := header(rec, "id")
		if id == "" {
			id = header(rec, "dead_letter_column_id")
		}
		reason := want[id]
		delete(want, id)
		if reason == "" || !strings.Contains(header(rec, "dead_letter_reason"), reason) {
			t.Errorf("letter of %q: reason %q, want one with %q", id, header(rec, "dead_letter_reason"), reason)
		}
		if v := string(rec.Value); string(rec.Key) != "a" || v != large && v != `{"bad": true}` {
			t.Errorf("letter of %q: key %s, value of %d bytes", id, rec.Key, len(rec.Value))
		}
		if !strings.HasPrefix(header(rec, "dead_letter_lsn"), "0/") || header(rec, "dead_letter_index") != "0" || header(rec, "dead_letter_slot") != r.slot {
			t.Errorf("letter of %q: %v", id, rec.Headers)
		}
	}
}

func header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// What the dead-letter topic does not take either ends the relay.
func TestDeadLetterRefused(t *testing.T) {
	cluster := kafkatest.Broker(t)
	r := newRig(t, pgtest.Database(t), cluster)
	dead := cluster.Topic(t, 1, nil)
	t.Setenv("OUTBOX_CDC_ON_BAD_RECORD", "dead-letter")
	t.Setenv("OUTBOX_CDC_DEAD_LETTER_TOPIC", dead)
	process := r.run(t)
	r.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('big', repeat('x', 2000000)))`)
	if code := process.exit(t, 20*time.Second); code != 14 {
		t.Errorf("exit code %d, want 14", code)
	}
	if out := process.stderr.String(); !strings.Contains(out, dead) {
		t.Errorf("the topic is not named:\n%s", out)
	}
}
