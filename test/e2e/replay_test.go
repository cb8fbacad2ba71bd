package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// replayRig is an outbox with n rows of 7 keys that were delivered, with the relay ended.
func replayRig(t *testing.T, n int) *rig.Rig {
	t.Helper()
	r := rig.New(t)
	process := r.Run(t)
	insertNumbers(t, r, n)
	r.Confirmed(t)
	process.Terminate(t)
	shuffle(t, r)
	return r
}

func insertNumbers(t *testing.T, r *rig.Rig, n int) {
	t.Helper()
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT gen_random_uuid(), 'order', 'key ' || n % 7, 'T', jsonb_build_object('n', n), '{"tenant": "t"}' FROM generate_series(1, $1) n`, n)
}

// shuffle moves rows within the table: how they lie there is no order.
func shuffle(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.DB.Exec(t, `UPDATE outbox SET created_at = created_at WHERE position % 3 = 0`)
}

// runReplay runs the verb and demands its exit code and what it prints.
func runReplay(t *testing.T, r *rig.Rig, code int, want string, flags ...string) string {
	t.Helper()
	out, got := rig.Command(t, append([]string{"replay", "-c", r.Config}, flags...)...)
	if got != code || !strings.Contains(out, want) {
		t.Errorf("replay %v: exit code %d, want %d and %q:\n%s", flags, got, code, want, rig.Tail(out, 20))
	}
	return out
}

// replayed returns the records that were sent again, by partition and offset.
func replayed(t *testing.T, r *rig.Rig) (all, again []*kgo.Record) {
	t.Helper()
	all = r.Kafka.ReadAll(t, r.Topic)
	for _, rec := range all {
		if rig.Header(rec, "replayed") == "true" {
			again = append(again, rec)
		}
	}
	return all, again
}

// number is the one that a row was made with.
func number(t *testing.T, rec *kgo.Record) int {
	t.Helper()
	var payload struct{ N int }
	rig.Must(t, json.Unmarshal(rec.Value, &payload))
	return payload.N
}

// ascending demands that the numbers of each key ascend.
func ascending(t *testing.T, records []*kgo.Record) {
	t.Helper()
	last := map[string]int{}
	for _, rec := range records {
		if n := number(t, rec); n <= last[string(rec.Key)] {
			t.Fatalf("%s: %d behind %d", rec.Key, n, last[string(rec.Key)])
		}
		last[string(rec.Key)] = number(t, rec)
	}
}

// Rows are sent as the relay has sent them, in the same order, and say that they come again. Slot
// and recorded position stay where they are.
func TestReplay(t *testing.T) {
	t.Parallel()
	r := replayRig(t, 500)
	conn := r.Connect(t)
	slot := func() string {
		return rig.Ask[string](t, conn, `SELECT confirmed_flush_lsn || ' ' || restart_lsn FROM pg_replication_slots WHERE slot_name = $1`, r.Slot)
	}
	positions := func() (n int) {
		for _, rec := range r.Kafka.ReadAll(t, position.DefaultTopic) {
			if strings.HasPrefix(string(rec.Key), r.Slot) {
				n++
			}
		}
		return n
	}
	slotBefore, positionsBefore := slot(), positions()
	runReplay(t, r, 0, "500 records would be sent to "+r.Topic, "--where", "true", "--dry-run")
	runReplay(t, r, 0, "500 of 500 rows", "--where", "true")
	if slot() != slotBefore || positions() != positionsBefore {
		t.Errorf("slot at %s, was at %s; %d positions, were %d", slot(), slotBefore, positions(), positionsBefore)
	}
	all, again := replayed(t, r)
	if len(all) != 1000 || len(again) != 500 {
		t.Fatalf("%d records, %d of them again", len(all), len(again))
	}
	ascending(t, again)
	content := func(rec *kgo.Record) string {
		headers := slices.DeleteFunc(slices.Clone(rec.Headers), func(h kgo.RecordHeader) bool { return h.Key == "replayed" || h.Key == "lsn" })
		return fmt.Sprintf("%d %q %q %q", rec.Partition, rec.Key, rec.Value, headers)
	}
	first := map[string]*kgo.Record{}
	for _, rec := range all {
		if rig.Header(rec, "replayed") == "" {
			first[rig.Header(rec, "id")] = rec
		}
	}
	for _, rec := range again {
		was := first[rig.Header(rec, "id")]
		if diff := cmp.Diff(content(was), content(rec)); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
		if d := was.Timestamp.Sub(rec.Timestamp); d < 0 || d > wait.Patience() { // of the insert, before the commit
			t.Errorf("timestamp %v, was %v", rec.Timestamp, was.Timestamp)
		}
		if rec.Headers[len(rec.Headers)-1].Key != "replayed" {
			t.Errorf("headers %v", rec.Headers)
		}
	}
}

// Each way to select rows selects them, and nothing else.
func TestReplaySelects(t *testing.T) {
	need.FullRun(t, "TestReplay runs always")
	t.Parallel()
	r := replayRig(t, 20)
	r.DB.Exec(t, `UPDATE outbox SET created_at = now() - interval '1 day' WHERE position <= 15`)
	conn := r.Connect(t)
	id := func(n int) string {
		return rig.Ask[string](t, conn, `SELECT id::text FROM outbox WHERE (payload->>'n')::int = $1`, n)
	}
	file := filepath.Join(t.TempDir(), "ids")
	rig.Must(t, os.WriteFile(file, []byte(id(9)+"\n"+strings.ToUpper(id(2))+"\r\n\n"), 0o600))
	before := map[int]int{}
	for _, tc := range []struct {
		flags []string
		want  []int
	}{
		{[]string{"--where", "payload->>'n' = '7' -- as a note"}, []int{7}},
		{[]string{"--since", "2h"}, []int{16, 17, 18, 19, 20}},
		{[]string{"--ids", id(3) + "," + id(1)}, []int{1, 3}},
		{[]string{"--ids", "@" + file}, []int{2, 9}},
		{[]string{"--where", "true", "--limit", "3"}, []int{1, 2, 3}},
		{[]string{"--where", "true", "--after", id(18)}, []int{19, 20}},
		{[]string{"--where", "position < 19", "--since", "2h", "--order-by", "id"}, []int{16, 17, 18}},
	} {
		runReplay(t, r, 0, fmt.Sprintf("%d of %[1]d row", len(tc.want)), tc.flags...)
		_, again := replayed(t, r)
		sent := map[int]int{}
		for _, rec := range again {
			sent[number(t, rec)]++
		}
		for _, n := range tc.want {
			before[n]++
		}
		if diff := cmp.Diff(before, sent); diff != "" {
			t.Errorf("%v: how often each number was sent (-want +got):\n%s", tc.flags, diff)
		}
	}
}

// What cannot be selected is told, without a value of any row, and nothing is sent or changed.
func TestReplayRefuses(t *testing.T) {
	need.FullRun(t, "TestReplay runs always")
	t.Parallel()
	r := rig.New(t)
	insertNumbers(t, r, 3)
	r.DB.Exec(t, `UPDATE outbox SET payload = '"`+canary+`"' WHERE position = 2`)
	r.DB.Exec(t, `CREATE TABLE bare (id int, aggregatetype text, aggregateid text, type text, payload jsonb); CREATE TABLE alien (id int, position int)`)
	role := r.DB.Name
	r.DB.Exec(t, `CREATE ROLE `+role+` LOGIN REPLICATION`)
	defer r.DB.Exec(t, `DROP ROLE `+role)
	other := strings.Replace(r.DB.DSN, "postgres://postgres", "postgres://"+role, 1)
	if other == r.DB.DSN {
		t.Fatalf("no role in %s", r.DB.DSN)
	}
	for _, tc := range []struct {
		code  int
		want  string
		flags []string
	}{
		{2, "--where true selects all", nil},
		{2, "no rows match", []string{"--where", "false"}},
		{2, `column "nothing" does not exist`, []string{"--where", "nothing = 1"}},
		{2, "must not write", []string{"--where", "nextval('outbox_position_seq') > 0"}},
		{2, "fails for a row with SQLSTATE 22P02", []string{"--where", "(payload #>> '{}')::int > 0"}},
		{2, `an id is not a uuid: invalid input syntax for type uuid: "x"`, []string{"--ids", "x"}},
		{2, "no row with the id 00000000-0000-0000-0000-000000000000", []string{"--ids", "00000000-0000-0000-0000-000000000000"}},
		{2, "none of the columns position", []string{"--where", "true", "--table", "bare"}},
		{2, "with the time of a row", []string{"--since", "1h", "--table", "bare", "--order-by", "id"}},
		{2, `no column "aggregateid"`, []string{"--where", "true", "--table", "alien"}},
		{2, "it must be a time", []string{"--since", "yesterday"}},
		{2, "select one table with --table", []string{"--where", "true", "--set", "outbox.tables=outbox,bare"}},
		{10, "GRANT SELECT ON \"public\".\"outbox\"", []string{"--where", "true", "--dsn", other}},
		{20, "can be reached", []string{"--where", "true", "--brokers", "127.0.0.1:1", "--set", "startup_timeout=1s"}},
		{14, "topic name", []string{"--where", "true", "--set", "outbox.topic=no topic: ${key}"}},
	} {
		if out := runReplay(t, r, tc.code, tc.want, tc.flags...); strings.Contains(out, canary) {
			t.Errorf("%v shows a value:\n%s", tc.flags, out)
		}
	}
	if all := r.Kafka.ReadAll(t, r.Topic); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
	if n := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM outbox`); n != 3 {
		t.Errorf("%d rows are left", n)
	}
}

// With several tables, the ids choose the one that has them: list, status and the log print replay --ids alone.
func TestReplayFindsTheTable(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `CREATE TABLE billing (LIKE outbox INCLUDING ALL); CREATE TABLE bare (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	id := func(table string, n int) string {
		id := fmt.Sprintf("00000000-0000-0000-0000-%012d", n)
		r.DB.Exec(t, `INSERT INTO `+table+` (id, aggregatetype, aggregateid, type) VALUES ($1, $2, 'k', 'T')`, id, table)
		return id
	}
	order, bill, both := id("outbox", 1), id("billing", 2), id("outbox", 3)
	id("billing", 3)
	for _, tc := range []struct {
		code      int
		ids, want string
		flags     []string
	}{
		{0, order, "_outbox", nil},
		{0, bill, "_billing", nil},
		{2, order + "," + bill, "replay the rows of each one with --table", nil},
		{2, both, "have rows with these ids: select one with --table", nil},
		{2, both + "," + bill, "replay the rows of each one with --table", nil},
		{2, order, "none of the columns position", []string{"--set", "outbox.tables=outbox,bare"}},
		{0, both, "_billing", []string{"--table", "billing"}},
		{2, bill, "no row with the id " + bill, []string{"--table", "outbox"}},
	} {
		flags := []string{"--ids", tc.ids, "--dry-run", "--set", "outbox.tables=outbox,billing", "--set", "outbox.topic=" + r.Topic + "_${route}"}
		runReplay(t, r, tc.code, tc.want, append(flags, tc.flags...)...)
	}
}

// A replay that is interrupted says up to where it is acknowledged, and one that goes on from there
// completes it, each key in order.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it interrupts replays")
	r := rig.New(t)
	insertNumbers(t, r, 3000)
	shuffle(t, r)
	p := rig.Start(t, "replay", "-c", r.Config, "--where", "true", "--rate", "150")
	p.Logged(t, "msg=progress") // after 10 s
	p.Signal(t, syscall.SIGINT)
	if code := p.Exit(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	after := lastOf(t, p.Stderr.String())
	_, first := replayed(t, r)
	runReplay(t, r, 0, fmt.Sprintf("%d of %[1]d rows", 3000-len(first)), "--where", "true", "--after", after)
	_, again := replayed(t, r)
	if len(again) != 3000 {
		t.Errorf("%d records", len(again))
	}
	ascending(t, again)
}

// lastOf is the row after which a replay of 3000 rows that was interrupted has to go on.
func lastOf(t *testing.T, out string) (id string) {
	t.Helper()
	_, id, found := strings.Cut(out, "--after '")
	id, _, _ = strings.Cut(id, "'")
	if !found || !strings.Contains(out, "of 3000 rows of public.outbox resent and acknowledged") || strings.Contains(out, "3000 of 3000") {
		t.Fatalf("the last row is not told:\n%s", out)
	}
	return id
}

// Where not all that was sent is acknowledged when a replay ends, the row to go on after is one
// behind which nothing is missing.
func TestReplayInOutage(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	proxy := faultproxy.Start(t, "")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen))
	r := rig.NewOn(t, rig.Database(t), fake.Cluster)
	r.Collector.Stop()
	insertNumbers(t, r, 3000)
	p := rig.Start(t, "replay", "-c", r.Config, "--where", "true", "--rate", "300", "--set", "drain_timeout=1s")
	wait.For(t, "some rows", func() bool { return stored(r.Topic, fake) > 300 })
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	wait.For(t, "rows that are sent and not acknowledged", func() bool { return fault.Hits() > 0 })
	proxy.Refuse()
	p.Signal(t, syscall.SIGINT)
	if code := p.Exit(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	fault.Remove()
	proxy.Accept()
	runReplay(t, r, 0, "rows of public.outbox resent", "--where", "true", "--after", lastOf(t, p.Stderr.String()))
	arrived := map[int]bool{}
	_, again := replayed(t, r)
	for _, rec := range again {
		arrived[number(t, rec)] = true
	}
	if len(arrived) != 3000 {
		t.Errorf("%d of 3000 rows arrived", len(arrived))
	}
}

// However many rows it are, they are sent in the same memory.
func TestReplayInLittleMemory(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it measures memory")
	const most = 64 // MB
	n := 120_000    // their payloads alone have 50 MB
	if need.Full() {
		n = 300_000
	}
	r, _ := rig.NewOwn(t) // one long transaction writes the rows, and slots would have to wait for it
	r.Collector.Stop()
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', n::text, 'T', jsonb_build_object('x', repeat('x', 400)) FROM generate_series(1, $1) n`, n)
	p := rig.Start(t, "replay", "-c", r.Config, "--where", "true")
	var peak int
	wait.For(t, "the end", func() bool {
		if m, err := p.Resident(); err == nil {
			peak = max(peak, m.Peak)
		}
		return p.Ended()
	})
	t.Logf("%d MB at most: %s", peak, rig.Tail(p.Stderr.String(), 1))
	if code := p.Exit(t); code != 0 || peak == 0 || peak > most {
		t.Errorf("exit code %d, %d MB, %d are allowed", code, peak, most)
	}
}

// On a terminal, replay asks before it sends very many rows.
func TestReplayAsks(t *testing.T) {
	need.FullRun(t, "TestReplay runs always")
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		need.Missing(t, "no script(1)")
	}
	r := rig.New(t)
	insertNumbers(t, r, 10_001)
	for answer, want := range map[string]int{"n\n": 0, "\n": 0, "y\n": 10_001} {
		cmd := exec.CommandContext(t.Context(), "script", "-qec", rig.Binary(t)+" replay -c "+r.Config+" --where true", "/dev/null")
		cmd.Stdin = strings.NewReader(answer)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "Resend 10001 rows of outbox to Kafka at ") || (err == nil) != (want > 0) {
			t.Errorf("%q: %v\n%s", answer, err, out)
		}
	}
	if _, again := replayed(t, r); len(again) != 10_001 {
		t.Errorf("%d records", len(again))
	}
	runReplay(t, r, 0, "10001 of 10001 rows", "--where", "true") // nobody to ask
}
