package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/audit"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// runAudit runs `audit --json`, checks its exit code and returns its report.
func runAudit(t *testing.T, r *rig.Rig, code int, flags ...string) *audit.Report {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rig.Binary(t), append([]string{"audit", "-c", r.Config, "--json"}, flags...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	report := new(audit.Report)
	if err := json.Unmarshal(out, report); err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%s%s", got, code, out, &stderr)
	}
	return report
}

// counts compares the report's only topic, which is the rig's, with want.
func counts(t *testing.T, r *rig.Rig, report *audit.Report, want audit.Topic) {
	t.Helper()
	want.Name = r.Topic
	if diff := cmp.Diff([]audit.Topic{want}, report.Topics); diff != "" {
		t.Errorf("(-want +got):\n%s\n%+v\n%v", diff, report.Findings, report.Notes)
	}
}

// An audit beside a running relay and its writers finds nothing, whichever rows are in flight.
func TestAuditBesideRelay(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it audits under load")
	r := rig.New(t)
	process := r.Run(t)
	r.Deliver(t, 100)
	var stopped atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for !stopped.Load() {
			r.Load.Run(t.Context(), t, 200)
		}
	})
	for range 3 {
		report := runAudit(t, r, 0)
		if report.Confirmed != audit.BySlot || !report.Ordered || len(report.Findings) > 0 {
			t.Errorf("%+v", report)
		}
	}
	stopped.Store(true)
	writing.Wait()
	r.Arrived(t)
	r.Confirmed(t)
	n := r.Load.Total()
	counts(t, r, runAudit(t, r, 0), audit.Topic{Rows: n, Records: n})
	process.Terminate(t)
	counts(t, r, runAudit(t, r, 0, "--where", "id IN (SELECT id FROM outbox ORDER BY position LIMIT 10)"), audit.Topic{Rows: 10, Records: n, NoRow: n - 10})
	if out, code := rig.Command(t, "audit", "-c", r.Config, "--until", "1h"); code != exit.Usage || !strings.Contains(out, "no row is selected") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := rig.Command(t, "audit", "-c", r.Config, "--order-by", "nothing"); code != exit.Usage || !strings.Contains(out, "none of the columns nothing") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if out, code := rig.Command(t, "audit", "-c", r.Config, "--since", "2100-01-01T00:00:00Z"); code != exit.OK || !strings.Contains(out, "note: no row is selected") {
		t.Errorf("of a quiet time: exit code %d\n%s", code, out)
	}
}

// The audit finds and names each kind of damage. With --allow it only reports it.
func TestAuditFindsDamage(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME TO filled; CREATE TABLE outbox (LIKE filled INCLUDING ALL) PARTITION BY RANGE (id);
		CREATE TABLE later PARTITION OF outbox FOR VALUES FROM ('00000000-0000-0000-0000-000000000002') TO (MAXVALUE)`)
	process := r.Run(t)
	insertNumbers(t, r, 70)
	r.Confirmed(t)
	// The relay never delivers the rows that a partition had before it was attached.
	r.DB.Exec(t, `INSERT INTO filled (id, aggregatetype, aggregateid, type) VALUES ('00000000-0000-0000-0000-000000000001', 'order', 'key 1', 'T')`)
	r.DB.Exec(t, `ALTER TABLE filled ALTER position DROP IDENTITY`) // from Postgres 17 on, a partition has that of the outbox
	r.DB.Exec(t, `ALTER TABLE outbox ATTACH PARTITION filled FOR VALUES FROM (MINVALUE) TO ('00000000-0000-0000-0000-000000000002')`)
	process.Kill(t)
	r.DB.Exec(t, `UPDATE outbox SET created_at = created_at - interval '1 hour'`) // phantoms are far from the oldest row

	all := r.Kafka.ReadAll(t, r.Topic)
	client := r.Kafka.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	again := func(rec *kgo.Record, change func(*kgo.Record)) {
		c := &kgo.Record{Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Headers: append([]kgo.RecordHeader(nil), rec.Headers...), Timestamp: rec.Timestamp}
		change(c)
		rig.Must(t, client.ProduceSync(t.Context(), c).FirstErr())
	}
	last := make(map[string]*kgo.Record)
	for _, rec := range all {
		last[string(rec.Key)] = rec
	}
	again(last["key 1"], func(*kgo.Record) {})
	again(all[0], func(c *kgo.Record) { c.Value = []byte(`{"n": 0}`) })
	again(all[1], func(c *kgo.Record) { c.Headers = c.Headers[:2] })
	again(all[2], func(c *kgo.Record) { c.Key = []byte("another") })
	again(all[0], func(c *kgo.Record) {
		c.Headers[0].Value = []byte("00000000-0000-0000-0000-00000000000f")
		c.Timestamp = time.Now()
	})
	report := runAudit(t, r, 1, "--assume-confirmed")
	counts(t, r, report, audit.Topic{Rows: 71, Records: 75, Missing: 1, Phantom: 1, Duplicate: 1, Altered: 3})
	var found []string
	for _, f := range report.Findings {
		found = append(found, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Kind, f.ID, f.Detail)))
	}
	id := func(rec *kgo.Record) string { return rig.Header(rec, "id") }
	want := []string{
		"missing 00000000-0000-0000-0000-000000000001 no record of the row is in the topic",
		"phantom  no row of the table has its id",
		"duplicate " + id(last["key 1"]) + " the row has an earlier record at " + fmt.Sprintf("%s[%d]@%d", r.Topic, last["key 1"].Partition, last["key 1"].Offset),
		"altered " + id(all[0]) + " its value (8 bytes) is not that of the row (8 bytes)",
		"altered " + id(all[1]) + " it has no header tenant",
		"altered " + id(all[2]) + ` its key is "another", not "` + string(all[2].Key) + `"`,
	}
	if diff := cmp.Diff(want, found, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	runAudit(t, r, 0, "--assume-confirmed", "--allow", "missing,phantom", "--allow", "duplicate", "--allow", "altered")
	out, code := rig.Command(t, "audit", "-c", r.Config, "--assume-confirmed")
	if code != 1 || !strings.Contains(out, "missing: "+r.Topic+" id 00000000-0000-0000-0000-000000000001: ") ||
		!strings.Contains(out, "the topics differ from the tables: 1 missing, 1 phantom, 1 duplicate, 3 altered") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A relay sends rows whose created_at no record can have as its timestamp. Then replay and audit take them, too.
func TestRowsWithoutATimeForARecord(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at) SELECT gen_random_uuid(), 'order', 'k', 'T', at
		FROM unnest(ARRAY['infinity', '1960-01-01', now()]::timestamptz[]) AS at`)
	r.Confirmed(t)
	counts(t, r, runAudit(t, r, 0), audit.Topic{Rows: 3, Records: 3})
	runReplay(t, r, 0, "3 of 3 rows", "--where", "true")
	counts(t, r, runAudit(t, r, 0), audit.Topic{Rows: 3, Records: 6, Resent: 3})
	process.Terminate(t)
}

// Rows that a stopped relay has not delivered are not missing. The position record tells which rows the
// relay has delivered.
func TestAuditLeavesOutUnconfirmedRows(t *testing.T) {
	need.FullRun(t, "TestAuditFindsDamage runs always")
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	insertNumbers(t, r, 50)
	r.Confirmed(t)
	r.AwaitSnapshotOfAll(t)
	r.Confirmed(t) // the relay reads nothing more once it stops
	process.Terminate(t)
	n := len(r.Kafka.ReadAll(t, r.Topic))
	insertNumbers(t, r, 20)
	report := runAudit(t, r, 0)
	counts(t, r, report, audit.Topic{Rows: n + 20, Records: n, Unconfirmed: 20})
	if report.Confirmed != audit.ByRecord {
		t.Errorf("confirmed by %s", report.Confirmed)
	}
	counts(t, r, runAudit(t, r, 1, "--assume-confirmed"), audit.Topic{Rows: n + 20, Records: n, Missing: 20})
	// Without a position record, the audit cannot know which rows the relay has delivered.
	config, err := os.ReadFile(r.Config)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(r.Config, append(config, "position_topic: ''\n"...), 0o600))
	if report := runAudit(t, r, 1); report.Confirmed != audit.Unknown || report.Count(audit.Missing) > 0 {
		t.Errorf("%+v", report)
	}
}

// The audit treats rows in the dead-letter topic as delivered, and counts them separately.
func TestAuditCountsDeadLetters(t *testing.T) {
	need.FullRun(t, "TestAuditFindsDamage runs always")
	t.Parallel()
	r := rig.New(t)
	dead := r.Kafka.Topic(t, 1, nil)
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic, "on_bad_record: dead-letter\ndead_letter_topic: "+dead)
	process := r.Run(t)
	insertNumbers(t, r, 10)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, headers) VALUES (gen_random_uuid(), 'order', 'key 1', 'T', '{"id": "mine"}')`)
	r.Confirmed(t)
	r.DB.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER TABLE outbox ALTER id DROP NOT NULL`)
	r.DB.Exec(t, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'key 1', 'T', '{"n": 1}'), ('order', 'key 2', 'T', '{"n": 1}')`)
	r.Confirmed(t)
	report := runAudit(t, r, 0)
	process.Terminate(t)
	r.DB.Exec(t, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'key 1', 'T', '{"n": 1}')`)
	if missing := runAudit(t, r, 1, "--assume-confirmed").Findings; len(missing) != 1 || missing[0].ID != "" || !strings.Contains(missing[0].Detail, "the row has no id") {
		t.Errorf("a row without id that no relay has read: %+v", missing)
	}
	sortTopics := cmpopts.SortSlices(func(a, b audit.Topic) bool { return a.Rows < b.Rows })
	want := []audit.Topic{{Name: dead, Rows: 3, DeadLetters: 3, Unsent: 3}, {Name: r.Topic, Rows: 10, Records: 10}}
	if diff := cmp.Diff(want, report.Topics, sortTopics); diff != "" {
		t.Errorf("(-want +got):\n%s\n%+v", diff, report.Findings)
	}
}

// A dead letter that was resent with a topic rule is the row's record, although the audit's configuration has no such rule.
func TestAuditKnowsDeadLettersResentToAnotherTopic(t *testing.T) {
	need.FullRun(t, "TestAuditFindsDamage runs always")
	t.Parallel()
	r := rig.New(t)
	dead := r.Kafka.Topic(t, 1, nil)
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, "${route}", "on_bad_record: dead-letter\ndead_letter_topic: "+dead)
	process := r.Run(t)
	for _, topic := range []string{r.Topic, "no such topic!"} {
		r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), '`+topic+`', 'key 1', 'T')`)
	}
	r.Confirmed(t)
	process.Terminate(t)
	rule := fmt.Sprintf(`outbox.topic_rules=[{match: "no such topic!", replace: %q}]`, r.Topic)
	if out, code := rig.Command(t, "dead-letter", "resend", "0:0", "-c", r.Config, "--set", rule); code != 0 {
		t.Fatalf("resend: exit code %d\n%s", code, out)
	}
	report := runAudit(t, r, 0, "--assume-confirmed")
	want := []audit.Topic{{Name: r.Topic, Rows: 1, Records: 2, Resent: 1}, {Name: dead, Rows: 1, DeadLetters: 1}}
	if diff := cmp.Diff(want, report.Topics, cmpopts.SortSlices(func(a, b audit.Topic) bool { return a.Records > b.Records })); diff != "" {
		t.Errorf("(-want +got):\n%s\n%+v", diff, report.Findings)
	}
}

// An audit of OUTBOX_TEST_ROWS rows needs little memory.
func TestAuditInLittleMemory(t *testing.T) {
	need.FullRun(t, "it measures memory")
	r := rig.New(t)
	process := r.Run(t)
	n := rig.EnvInt(t, "OUTBOX_TEST_ROWS", 20_000)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', 'key ' || n % 100000, 'T', jsonb_build_object('n', n, 'pad', repeat('x', 170)) FROM generate_series(1, $1) n`, n)
	r.Confirmed(t)
	measureAudit(t, r)
	process.Terminate(t)
}

// An audit reads OUTBOX_TEST_TOPICS topics of 12 partitions in little time and memory.
func TestAuditOfManyTopics(t *testing.T) {
	need.FullRun(t, "it measures memory")
	r := rig.New(t)
	n := rig.EnvInt(t, "OUTBOX_TEST_TOPICS", 20)
	topics := make([]string, n)
	for i := range topics {
		topics[i] = fmt.Sprint(r.Topic, ".", i)
	}
	r.Kafka.DeleteTopics(t, topics...)
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic+".${route}", "sink.kafka.create_topics.partitions: 12\n")
	process := r.Run(t)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), n % $1, 'key ' || n, 'T', jsonb_build_object('n', n) FROM generate_series(1, 100 * $1) n`, n)
	r.Confirmed(t)
	out := measureAudit(t, r)
	process.Terminate(t)
	if listed := strings.Count(out, r.Topic+"."); listed != n {
		t.Errorf("%d of %d topics are in the report\n%s", listed, n, out)
	}
}

// measureAudit runs an audit that must find nothing, logs what it took, and checks its memory.
func measureAudit(t *testing.T, r *rig.Rig) (out string) {
	t.Helper()
	audit := rig.Start(t, "audit", "-c", r.Config)
	peak := 0
	wait.For(t, "the audit to end", func() bool {
		if m, err := audit.Resident(); err == nil {
			peak = max(peak, m.Peak)
		}
		return audit.Ended()
	})
	out = audit.Stderr.String()
	if code := audit.Exit(t); code != 0 || !strings.Contains(out, "confirmed by: slot") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	t.Logf("%d MB, %.1f s of CPU", peak,
		(audit.Cmd.ProcessState.UserTime() + audit.Cmd.ProcessState.SystemTime()).Seconds())
	if peak > auditResident {
		t.Errorf("peak resident memory was %d MB, it may be %d MB", peak, auditResident)
	}
	return out
}

// auditResident is the limit for the resident memory of an audit of a million rows, or of a thousand topics, in MB.
const auditResident = 100
