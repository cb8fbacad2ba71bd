package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A row too large for its topic stands between other rows of its key. What came before it is
// delivered, nothing behind it that shares its partition is, and when the topic takes larger
// records the next start goes on with it, in order.
func TestTooLargeBetweenOthers(t *testing.T) {
	t.Parallel()
	r, _ := fakeRig(t)
	process := r.run(t)
	const rows, large = 20, 10
	for n := range rows {
		pad := 10
		if n == large {
			pad = 2_000_000
		}
		for _, key := range []string{"a", "b", "c"} {
			r.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				VALUES (gen_random_uuid(), 'order', $1, 'T', jsonb_build_object('n', $2::int, 'pad', repeat('x', $3::int)))`, key, n, pad)
			pad = 10 // only a's row is large
		}
	}
	process.fails(t, 14, "max.message.bytes")
	numbers := func(key string) (numbers []int, partition int32) {
		for _, rec := range r.kafka.ReadAll(t, r.topic) {
			if string(rec.Key) == key {
				numbers, partition = append(numbers, numberOf(rec.Value)), rec.Partition
			}
		}
		return numbers, partition
	}
	first, own := numbers("a")
	if !slices.Equal(first, upTo(large)) {
		t.Errorf("key a has %v, want what is before the large row", first)
	}
	for _, key := range []string{"b", "c"} {
		got, partition := numbers(key)
		if len(got) < large || partition == own && len(got) > large {
			t.Errorf("key %s in partition %d has %v; the large row is behind number %d in partition %d", key, partition, got, large-1, own)
		}
	}

	r.alter(t, "max.message.bytes", "3000000")
	process = r.run(t)
	r.confirmed(t, 30*time.Second)
	process.terminate(t)
	for _, key := range []string{"a", "b", "c"} {
		got, _ := numbers(key)
		if repeated := len(got) - rows; repeated < 0 || !slices.Equal(firstSeen(got), upTo(rows)) || key == "a" && repeated > 0 {
			t.Errorf("key %s has %v", key, got)
		}
	}
}

// alter changes one setting of the rig's topic.
func (r *rig) alter(t *testing.T, name, value string) {
	t.Helper()
	changed, err := r.kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, r.topic)
	if err == nil {
		_, err = changed.On(r.topic, nil)
	}
	must(t, err)
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// firstSeen returns numbers without those that were there before.
func firstSeen(numbers []int) (first []int) {
	for _, n := range numbers {
		if !slices.Contains(first, n) {
			first = append(first, n)
		}
	}
	return first
}

// nullable is a rig whose outbox takes NULL where Kafka might, with the row's own topic.
func nullable(t *testing.T, cluster *kafkatest.Cluster) *rig {
	t.Helper()
	r := newRig(t, pgtest.Database(t), cluster)
	r.db.Exec(t, `ALTER TABLE outbox ALTER aggregateid DROP NOT NULL, ALTER aggregatetype DROP NOT NULL, ALTER type DROP NOT NULL`)
	return r
}

// insertRow inserts a row, nil for NULL, and returns its id.
func (r *rig) insertRow(t *testing.T, topic, key, payload any) string {
	t.Helper()
	return pgtest.QueryRow[string](t, r.db, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), $1, $2, 'T', $3::jsonb) RETURNING id::text`, topic, key, payload)
}

// routed makes the topic the value of its column.
const routed = "outbox.topic=${route}"

// NULL has a meaning in Kafka, and keeps it: a record without a key, a record without a value.
// It is not taken for an empty string.
func TestNullKeyAndPayload(t *testing.T) {
	t.Parallel()
	r := nullable(t, kafkatest.Fake(t).Cluster)
	process := start(t, "run", "-c", r.config, "--set", routed)
	process.logged(t, "streaming")
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	want := map[string]string{
		r.insertRow(t, r.topic, "k", nil):    `"k" null`,
		r.insertRow(t, r.topic, nil, `{}`):   `null "{}"`,
		r.insertRow(t, r.topic, nil, nil):    `null null`,
		r.insertRow(t, r.topic, "", `{}`):    `"" "{}"`,
		r.insertRow(t, r.topic, "k", `""`):   `"k" "\"\""`,
		r.insertRow(t, r.topic, "k", "null"): `"k" "null"`,
	}
	r.confirmed(t, 30*time.Second)
	process.terminate(t)
	records := r.kafka.ReadAll(t, r.topic)
	for _, rec := range records {
		if got := show(rec.Key) + " " + show(rec.Value); got != want[header(rec, "id")] {
			t.Errorf("record %s, want %s", got, want[header(rec, "id")])
		}
	}
	if len(records) != len(want) {
		t.Errorf("%d records, want %d", len(records), len(want))
	}
}

// Where NULL cannot be delivered the relay stops at it, and says of which row it is and what
// is wrong; if it was asked to, it puts the row aside and goes on.
func TestNullIsRefused(t *testing.T) {
	t.Parallel()
	fake, broker := kafkatest.Fake(t).Cluster, kafkatest.Broker(t)
	compacted := broker.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	for name, tc := range map[string]struct {
		kafka      *kafkatest.Cluster
		topic, key any
		says       []string
	}{
		"topic":                    {fake, nil, "k", []string{"aggregatetype", "is NULL"}},
		"key of a compacted topic": {broker, compacted, nil, []string{"INVALID_RECORD", "compacted topic", compacted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := nullable(t, tc.kafka)
			args := []string{"run", "-c", r.config, "--set", routed}
			process := start(t, args...)
			process.logged(t, "streaming")
			before := r.insertRow(t, r.topic, "k", `{}`)
			bad := r.insertRow(t, tc.topic, tc.key, `{}`)
			after := r.insertRow(t, r.topic, "k", `{}`)
			process.fails(t, 14, append(tc.says, bad, "transaction 0/")...)

			dead := r.kafka.Topic(t, 1, nil)
			process = start(t, append(args, "--set", "on_bad_record=dead-letter", "--set", "dead_letter_topic="+dead)...)
			process.logged(t, "streaming")
			r.confirmed(t, 30*time.Second)
			process.terminate(t)
			ids := func(records []*kgo.Record) (ids []string) {
				for _, rec := range records {
					ids = append(ids, header(rec, "id")+header(rec, "dead_letter_column_id"))
				}
				return slices.Compact(ids)
			}
			if got := ids(r.kafka.ReadAll(t, r.topic)); !slices.Equal(got, []string{before, after}) {
				t.Errorf("the topic has %v, want %v", got, []string{before, after})
			}
			if got := ids(r.kafka.ReadAll(t, dead)); !slices.Equal(got, []string{bad}) {
				t.Errorf("the dead-letter topic has %v, want %s", got, bad)
			}
		})
	}
}
