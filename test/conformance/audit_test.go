package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// unaudited are the cases in which the table no longer has the rows that Debezium read, and why.
func unaudited() map[string]string {
	return map[string]string{
		"013-quarkus-table":          "each row is deleted in the transaction that inserts it",
		"063-toast":                  "a row is updated",
		"067-partitioned-root":       "a row is moved to another partition",
		"068-partitioned-leaves":     "a row is moved to another partition",
		"072-messages":               "rows are logical messages",
		"074-predicate":              "a predicate leaves out rows",
		"083-messages-null-envelope": "rows are logical messages",
	}
}

// An audit of Debezium's records, with its imported configuration, finds nothing. It finds an altered
// record.
func TestAuditOfDebezium(t *testing.T) {
	need.FullRun(t, "test/e2e tests the verb always")
	cases, err := load(os.DirFS(corpus))
	rig.Must(t, err)
	all := len(cases)
	cases = slices.DeleteFunc(cases, func(c *recordedCase) bool {
		return unaudited()[c.name] != "" || c.failure != "" || deviations[c.name] != nil || !auditable(c)
	})
	t.Logf("%d of %d cases have what the rows say", len(cases), all)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			if err := c.setup.run(t.Context(), db.DSN); err != nil {
				if strings.Contains(err.Error(), "extension") {
					need.Missing(t, "the extension the case is about: %v", err)
				}
				t.Fatal(err)
			}
			rig.Must(t, c.rows.run(t.Context(), db.DSN))
			fake := kafkatest.Fake(t)
			for _, topic := range c.topics {
				fake.CreateTopic(t, topic.name, topic.partitions, nil)
			}
			client := fake.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for i := range c.records {
				rig.Must(t, client.ProduceSync(t.Context(), produced(&c.records[i])).FirstErr())
			}
			config := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
			if out, code := importCase(t, c, db, fake.Cluster, config); code != 0 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			if out, code := rig.Command(t, "audit", "-c", config, "--assume-confirmed"); code != 0 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			for i := range c.records { // some of the rows no longer exist
				altered := produced(&c.records[i])
				altered.Value = append([]byte("x"), altered.Value...)
				rig.Must(t, client.ProduceSync(t.Context(), altered).FirstErr())
			}
			if out, code := rig.Command(t, "audit", "-c", config, "--assume-confirmed"); code != 1 || !strings.Contains(out, "altered: "+c.records[0].Topic) {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// auditable reports whether all records of the case were recorded, with their values.
func auditable(c *recordedCase) bool {
	for _, topic := range c.topics {
		if topic.firstOnly || topic.anyValue {
			return false
		}
	}
	for i := range c.records {
		if c.records[i].AnyValue {
			return false
		}
	}
	return len(c.records) > 0
}

func produced(r *Record) *kgo.Record {
	rec := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	return rec
}
