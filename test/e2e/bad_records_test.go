package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A row that is too large for its topic stops the relay. The relay has delivered every earlier row of the
// partition and no later one. After the topic's limit is raised, the next start continues with that row,
// in order.
func TestTooLargeBetweenOthers(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it inserts sixty rows one by one")
	r := rig.New(t)
	process := r.Run(t)
	const rows, large = 20, 10
	for n := range rows {
		pad := 10
		if n == large {
			pad = 2_000_000
		}
		for _, key := range []string{"a", "b", "c"} {
			r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				VALUES (gen_random_uuid(), 'order', $1, 'T', jsonb_build_object('n', $2::int, 'pad', repeat('x', $3::int)))`, key, n, pad)
			pad = 10 // only the row of key a is large
		}
	}
	process.Fails(t, 14, "max.message.bytes")
	numbers := func(key string) (numbers []int, partition int32) {
		for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
			if string(rec.Key) == key {
				numbers, partition = append(numbers, rig.NumberOf(rec.Value)), rec.Partition
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

	alter(t, r, "max.message.bytes", "3000000")
	process = r.Run(t)
	r.Confirmed(t)
	process.Terminate(t)
	for _, key := range []string{"a", "b", "c"} {
		got, _ := numbers(key)
		if repeated := len(got) - rows; repeated < 0 || !slices.Equal(firstSeen(got), upTo(rows)) || key == "a" && repeated > 0 {
			t.Errorf("key %s has %v", key, got)
		}
	}
}

// alter changes one setting of the rig's topic.
func alter(t *testing.T, r *rig.Rig, name, value string) {
	t.Helper()
	changed, err := r.Kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, r.Topic)
	if err == nil {
		_, err = changed.On(r.Topic, nil)
	}
	rig.Must(t, err)
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// firstSeen returns numbers without duplicates, each at its first occurrence.
func firstSeen(numbers []int) (first []int) {
	for _, n := range numbers {
		if !slices.Contains(first, n) {
			first = append(first, n)
		}
	}
	return first
}

// nullable returns a rig whose outbox accepts NULL in every column that can be NULL in Kafka.
func nullable(t *testing.T, cluster *kafkatest.Cluster) *rig.Rig {
	t.Helper()
	r := rig.NewOn(t, rig.Database(t), cluster)
	r.DB.Exec(t, `ALTER TABLE outbox ALTER aggregateid DROP NOT NULL, ALTER aggregatetype DROP NOT NULL, ALTER type DROP NOT NULL`)
	return r
}

// insertRow inserts a row, nil for NULL, and returns its id.
func insertRow(t *testing.T, r *rig.Rig, topic, key, payload any) string {
	t.Helper()
	return pgtest.QueryRow[string](t, r.DB, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), $1, $2, 'T', $3::jsonb) RETURNING id::text`, topic, key, payload)
}

// routed takes the topic from the row's route column.
const routed = "outbox.topic=${route}"

// NULL stays NULL in Kafka: a record without a key, or a record without a value. The relay does not
// replace it with an empty string.
func TestNullKeyAndPayload(t *testing.T) {
	need.FullRun(t, "internal/encode tests the rule always")
	t.Parallel()
	r := nullable(t, kafkatest.Broker(t))
	process := rig.Start(t, "run", "-c", r.Config, "--set", routed)
	process.Logged(t, "streaming")
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	want := map[string]string{
		insertRow(t, r, r.Topic, "k", nil):    `"k" null`,
		insertRow(t, r, r.Topic, nil, `{}`):   `null "{}"`,
		insertRow(t, r, r.Topic, nil, nil):    `null null`,
		insertRow(t, r, r.Topic, "", `{}`):    `"" "{}"`,
		insertRow(t, r, r.Topic, "k", `""`):   `"k" "\"\""`,
		insertRow(t, r, r.Topic, "k", "null"): `"k" "null"`,
	}
	r.Confirmed(t)
	process.Terminate(t)
	records := r.Kafka.ReadAll(t, r.Topic)
	for _, rec := range records {
		if got := show(rec.Key) + " " + show(rec.Value); got != want[rig.Header(rec, "id")] {
			t.Errorf("record %s, want %s", got, want[rig.Header(rec, "id")])
		}
	}
	if len(records) != len(want) {
		t.Errorf("%d records, want %d", len(records), len(want))
	}
}

// If a row cannot be delivered because of a NULL, the relay stops at it, and names the row and the reason.
// With on_bad_record=dead-letter, the relay sends the row to the dead-letter topic and continues.
func TestNullIsRefused(t *testing.T) {
	need.FullRun(t, "internal/encode tests the rule always")
	t.Parallel()
	for name, tc := range map[string]struct {
		kafka      func(testing.TB) *kafkatest.Cluster
		topic, key any // empty: a compacted topic
		says       []string
	}{
		"topic":                    {kafkatest.Broker, nil, "k", []string{"aggregatetype", "is NULL"}},
		"key of a compacted topic": {kafkatest.Real, "", nil, []string{"INVALID_RECORD", "compacted topic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafka := tc.kafka(t)
			if tc.topic == "" {
				compacted := kafka.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
				tc.topic, tc.says = compacted, append(tc.says, compacted)
			}
			r := nullable(t, kafka)
			args := []string{"run", "-c", r.Config, "--set", routed}
			process := rig.Start(t, args...)
			process.Logged(t, "streaming")
			before := insertRow(t, r, r.Topic, "k", `{}`)
			bad := insertRow(t, r, tc.topic, tc.key, `{}`)
			after := insertRow(t, r, r.Topic, "k", `{}`)
			process.Fails(t, 14, append(tc.says, bad, "transaction 0/")...)

			dead := r.Kafka.Topic(t, 1, nil)
			process = rig.Start(t, append(args, "--set", "on_bad_record=dead-letter", "--set", "dead_letter_topic="+dead)...)
			process.Logged(t, "streaming")
			r.Confirmed(t)
			process.Terminate(t)
			ids := func(records []*kgo.Record) (ids []string) {
				for _, rec := range records {
					ids = append(ids, rig.Header(rec, "id")+rig.Header(rec, "dead_letter_column_id"))
				}
				return slices.Compact(ids)
			}
			if got := ids(r.Kafka.ReadAll(t, r.Topic)); !slices.Equal(got, []string{before, after}) {
				t.Errorf("the topic has %v, want %v", got, []string{before, after})
			}
			if got := ids(r.Kafka.ReadAll(t, dead)); !slices.Equal(got, []string{bad}) {
				t.Errorf("the dead-letter topic has %v, want %s", got, bad)
			}
		})
	}
}
