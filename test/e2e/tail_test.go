package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// tailBegins is what tail says when everything that is committed from then on will be shown.
const tailBegins = "Nothing is sent, and no slot advances"

// A tailed is a line of `tail --json`.
type tailed struct {
	Transaction, Reason, Topic string
	Row, Partition             *int
	ExitCode                   int `json:"exit_code"`
	Key, Value                 any
	Headers                    []struct {
		Name  string
		Value any
	}
}

func parseTailed(t *testing.T, out string) (rows []tailed) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			var row tailed
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// runTail prints n rows from where the relay's slot stands.
func runTail(t *testing.T, r *rig.Rig, n int, args ...string) []tailed {
	t.Helper()
	out, code := rig.Command(t, append([]string{"tail", "-c", r.Config, "--from", "slot", "--json", "--limit", fmt.Sprint(n)}, args...)...)
	rows := parseTailed(t, out)
	if code != 0 || len(rows) != n {
		t.Fatalf("exit code %d, %d rows of %d\n%s", code, len(rows), n, out)
	}
	return rows
}

// tailSlots are those that are there and belong to a tail of this database.
func tailSlots(t *testing.T, r *rig.Rig) int {
	t.Helper()
	return rig.Ask[int](t, r.Connect(t), `SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'outbox_cdc_tail_%' AND database = current_database()`)
}

// What tail shows beside a relay is what the relay then sends: the same records, byte for byte, in the
// same order.
func TestTailShowsWhatIsProduced(t *testing.T) {
	t.Parallel()
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t)
		tail := rig.Start(t, "tail", "-c", r.Config, "--json")
		tail.Logged(t, tailBegins)
		r.Load.Run(t.Context(), t, 1000)
		r.Arrived(t)
		wait.For(t, "all rows to be shown", func() bool { return strings.Count(tail.Stderr.String(), "\n{") >= r.Load.Total() })
		tail.Terminate(t)
		process.Terminate(t)
		r.Settle(t, 0)

		type record struct{ Topic, Key, Value, Headers string }
		want := map[string][]record{}
		for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
			key := string(rec.Key)
			want[key] = append(want[key], record{rec.Topic, key, string(rec.Value), fmt.Sprint(rec.Headers)})
			last := &want[key][len(want[key])-1]
			last.Headers = ""
			for _, h := range rec.Headers {
				last.Headers += fmt.Sprintf("%s=%s;", h.Key, h.Value)
			}
			if rec.Value == nil {
				last.Value = "<nil>"
			}
		}
		got := map[string][]record{}
		for _, row := range parseTailed(t, tail.Stderr.String()) {
			key := fmt.Sprint(row.Key)
			rec := record{row.Topic, key, fmt.Sprint(row.Value), ""}
			for _, h := range row.Headers {
				rec.Headers += fmt.Sprintf("%s=%s;", h.Name, h.Value)
			}
			got[key] = append(got[key], rec)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-produced +shown):\n%s", diff)
		}
		wait.For(t, "its slot to be gone", func() bool { return tailSlots(t, r) == 0 })
	})
}

// With --until-end, tail stops after the rows that are committed, also if there are none; with --for, after a time.
func TestTailStops(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/tail tests the end always")
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
			t.Fatalf("setup: exit code %d\n%s", code, out)
		}
		out, code := rig.Command(t, "tail", "-c", r.Config, "--from", "slot", "--until-end")
		if code != 0 || !strings.Contains(out, "no rows: the slot is at the end of the WAL") {
			t.Errorf("with no rows: exit code %d\n%s", code, out)
		}
		r.Load.Run(t.Context(), t, 200)
		out, code = rig.Command(t, "tail", "-c", r.Config, "--from", "slot", "--until-end", "--json")
		if n := len(parseTailed(t, out)); code != 0 || n != r.Load.Total() {
			t.Errorf("exit code %d, %d rows of %d", code, n, r.Load.Total())
		}
		out, code = rig.Command(t, "tail", "-c", r.Config, "--from", "slot", "--until-end", "--limit", "3", "--json")
		if n := len(parseTailed(t, out)); code != 0 || n != 3 {
			t.Errorf("exit code %d, %d rows of 3", code, n)
		}
		began := time.Now()
		out, code = rig.Command(t, "tail", "-c", r.Config, "--for", "500ms")
		took := time.Since(began) //nolint:forbidigo // a busy machine makes it only longer
		if code != 0 || !strings.Contains(out, tailBegins) || took < 500*time.Millisecond {
			t.Errorf("exit code %d after %s\n%s", code, took, out)
		}
		if out, code := rig.Command(t, "tail", "-c", r.Config, "--until-end"); code != 2 || !strings.Contains(out, "--until-end needs --from slot") {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
}

// From where the slot stands, tail shows what has not been delivered, again and again: it moves
// nothing.
func TestTailFromTheSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestTailShowsWhatIsProduced runs always")
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
			t.Fatalf("setup: exit code %d\n%s", code, out)
		}
		r.Load.Run(t.Context(), t, 200)
		conn := r.Connect(t)
		const position = `SELECT concat(restart_lsn, ' ', confirmed_flush_lsn, ' ', active) FROM pg_replication_slots WHERE slot_name = $1`
		before := rig.Ask[string](t, conn, position, r.Slot)
		first := runTail(t, r, 100)
		if diff := cmp.Diff(first, runTail(t, r, 100)); diff != "" {
			t.Errorf("the second time something else is shown (-first +second):\n%s", diff)
		}
		if after := rig.Ask[string](t, conn, position, r.Slot); after != before {
			t.Errorf("the slot was at %s and is at %s", before, after)
		}
		wait.For(t, "its slots to be gone", func() bool { return tailSlots(t, r) == 0 })
	})
}

// What cannot be sent is shown with its reason and what run would do, and what follows is shown too;
// the relay's own slot need not exist, nor Kafka. Bytes that are no text are shown as such.
func TestTailOfBadRows(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `ALTER TABLE outbox ADD COLUMN raw bytea, ADD COLUMN lane int;
		CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert, update')`)
	config := yamlFile(t, `
source: {dsn: %q, publication: %s}
outbox: {topic: "${route}", columns: {payload: raw}, place: [{column: lane, to: partition}]}
`, r.DB.DSN, rig.Publication)
	follow := func(args ...string) *rig.Process {
		p := rig.Start(t, append([]string{"tail", "-c", config, "--limit", "5"}, args...)...)
		p.Logged(t, tailBegins)
		return p
	}
	stop, aside, text := follow("--json"), follow("--json", "--set", "on_bad_record=dead-letter"), follow()
	r.DB.Exec(t, `
		INSERT INTO outbox (id, aggregatetype, aggregateid, type, raw, lane) VALUES
			('018f5b3a-0000-7000-8000-000000000001', 'good', 'k', 'T', '\x00ff', 3),
			('018f5b3a-0000-7000-8000-000000000002', 'no topic', 'k', 'T', 'p4yload', NULL),
			('018f5b3a-0000-7000-8000-000000000003', 'good', E'a\tb', 'T', NULL, NULL);
		UPDATE outbox SET type = 'U' WHERE aggregateid = 'k' AND aggregatetype = 'good';
		INSERT INTO outbox (id, aggregatetype, aggregateid, type, raw) VALUES ('018f5b3a-0000-7000-8000-000000000004', 'good', 'k', 'T', '')`)
	for _, p := range []*rig.Process{stop, aside, text} {
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit code %d\n%s", code, p.Stderr)
		}
	}

	rows := parseTailed(t, stop.Stderr.String())
	if len(rows) != 5 {
		t.Fatalf("%d rows\n%s", len(rows), stop.Stderr)
	}
	if r := rows[0]; r.Topic != "good" || r.Partition == nil || *r.Partition != 3 || r.Key != "k" || fmt.Sprint(r.Value) != "map[base64:AP8=]" || *r.Row != 0 {
		t.Errorf("bytes: %+v", r)
	}
	if r := rows[1]; r.Topic != "" || !strings.Contains(r.Reason, "topic name") || r.ExitCode != exit.BadRecord || *r.Row != 1 || strings.Contains(r.Reason, "p4yload") {
		t.Errorf("no topic: %+v", r)
	}
	if r := rows[2]; r.Key != "a\tb" || r.Value != nil || r.Partition != nil || *r.Row != 2 {
		t.Errorf("no value: %+v", r)
	}
	if r := rows[3]; r.Row != nil || r.ExitCode != exit.NoDelivery || !strings.Contains(r.Reason, "UPDATE of public.outbox") {
		t.Errorf("an update: %+v", r)
	}
	if r := rows[4]; r.Value != "" || *r.Row != 0 && *r.Row != 3 {
		t.Errorf("an empty value: %+v", r)
	}
	if rows = parseTailed(t, aside.Stderr.String()); len(rows) != 5 || rows[1].Topic != "outbox.dead-letter" || rows[1].Value != "p4yload" || !strings.Contains(rows[1].Reason, "topic name") {
		t.Errorf("put aside: %+v", rows)
	}
	for _, want := range []string{
		"  topic   good, partition 3\n", "  value   0x00ff (2 bytes)\n", `  key     "a\tb" (3 bytes)`, "  value   null\n", "  value   empty\n",
		"run would stop here with exit code 14", "run would stop here with exit code 13",
	} {
		if !strings.Contains(text.Stderr.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, text.Stderr)
		}
	}
}

// Where no slot can be had, that is said with what helps; and waiting for a transaction can be ended.
func TestTailWithoutASlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestTailShowsWhatIsProduced runs always")
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_replication_slots": "1"}})
	db := pgtest.DatabaseOn(t, srv)
	rig.Migrate(t, db.DSN)
	args := []string{"tail", "--dsn", db.DSN, "--publication", rig.Publication, "--slot", "taken"}
	rig.Start(t, args...).Fails(t, exit.NoDelivery, "publication", "outbox-cdc setup")
	rig.Start(t, append(args, "--from", "yesterday")...).Fails(t, exit.Usage, "--from must be now or slot")
	if out, code := rig.Command(t, "setup", "--dsn", db.DSN, "--publication", rig.Publication, "--slot", "taken"); code != 0 {
		t.Fatal(out)
	}
	rig.Start(t, args...).Fails(t, exit.Source, "max_replication_slots", "pg_replication_slots")
	rig.Start(t, append(args, "--from", "slot")...).Fails(t, exit.Source, "max_replication_slots")
	db.Exec(t, `SELECT pg_drop_replication_slot('taken')`)
	rig.Start(t, append(args, "--from", "slot")...).Fails(t, exit.SlotLost, `slot "taken" does not exist`)

	conn := db.Conn(t)
	tx, err := conn.Begin(t.Context())
	rig.Must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT pg_current_xact_id()`)
	rig.Must(t, err)
	waiting := rig.Start(t, args...)
	slots := func() int { return pgtest.QueryRow[int](t, db, `SELECT count(*)::int FROM pg_replication_slots`) }
	wait.For(t, "it to wait for the transaction", func() bool { return slots() == 1 })
	waiting.Signal(t, syscall.SIGINT)
	if code := waiting.Exit(t); code != 0 {
		t.Errorf("exit code %d of Ctrl-C\n%s", code, waiting.Stderr)
	}
	wait.For(t, "the slot to be gone", func() bool { return slots() == 0 })
	rig.Must(t, tx.Rollback(t.Context()))
}
