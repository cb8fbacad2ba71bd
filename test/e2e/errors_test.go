package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Every mistake in the configuration stops the process at its start with its own exit code, and with a
// message that says what is wrong, where, and what to do.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	cluster := kafkatest.Fake(t)
	if out, code := rig.Command(t, "migrate", "up", "--dsn", db.DSN); code != 0 {
		t.Fatal(out)
	}
	db.Exec(t, `CREATE TABLE other (id uuid PRIMARY KEY, aggregatetype text, payload text)`)
	db.Exec(t, `CREATE PUBLICATION good FOR TABLE outbox WITH (publish = 'insert')`)
	db.Exec(t, `CREATE PUBLICATION empty`)
	db.Exec(t, `CREATE PUBLICATION no_inserts FOR TABLE outbox WITH (publish = 'update')`)
	db.Exec(t, `CREATE PUBLICATION other FOR TABLE other WITH (publish = 'insert')`)
	slot := func(name, plugin string) string {
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, $2)`, name, plugin)
		return name
	}
	good := slot("errors_good", "pgoutput")
	foreign := slot("errors_foreign", "test_decoding")
	dead := rig.ClosedPort(t)

	type setting map[string]string
	for name, tc := range map[string]struct {
		with setting // changes to a working configuration; an empty value removes the key
		code int
		says []string
	}{
		"unknown role":        {setting{"dsn": replaceUser(db.DSN, "nobody_knows:secret-word")}, 10, []string{"nobody_knows"}},
		"wrong database":      {setting{"dsn": replaceDatabase(db.DSN, "no_such_db")}, 10, []string{"no_such_db"}},
		"unreachable server":  {setting{"dsn": "postgres://app@" + dead + "/app"}, 10, []string{dead, "source.dsn"}},
		"ambiguous password":  {setting{"dsn": replaceUser(db.DSN, "app:secret-word@x")}, 2, []string{"source.dsn", "%40"}},
		"DSN with a mistake":  {setting{"dsn": "postgres://app:secret-word@h:port/app"}, 2, []string{"source.dsn"}},
		"missing slot":        {setting{"slot": "errors_nowhere"}, 11, []string{"errors_nowhere", "outbox-cdc setup"}},
		"slot of a plugin":    {setting{"slot": foreign}, 10, []string{foreign, "test_decoding", "pgoutput"}},
		"illegal slot name":   {setting{"slot": "Not-A-Slot"}, 2, []string{"source.slot", "Not-A-Slot"}},
		"missing publication": {setting{"publication": "nowhere"}, 13, []string{"nowhere"}},
		"empty publication":   {setting{"publication": "empty"}, 13, []string{"empty"}},
		"publishes no insert": {setting{"publication": "no_inserts"}, 13, []string{"no_inserts", "insert"}},
		"missing columns":     {setting{"publication": "other", "tables": "other"}, 13, []string{"aggregateid", "outbox.columns.key", "public.other"}},
		"missing table":       {setting{"publication": "new", "slot": "errors_new", "tables": "no_such_table"}, 13, []string{"no_such_table", "outbox-cdc migrate up --dsn … --table no_such_table"}},
		"unknown key":         {setting{"sink.kafka.borkers": "[x]"}, 2, []string{"borkers", "brokers"}},
		"no brokers":          {setting{"brokers": ""}, 2, []string{"sink.kafka.brokers"}},
		"unreachable broker":  {setting{"brokers": dead}, 20, []string{dead, "sink.kafka.brokers"}},
		"bad topic template":  {setting{"topic": "${oops"}, 2, []string{"outbox.topic", "${oops"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setting{"dsn": db.DSN, "publication": "good", "slot": good, "brokers": cluster.Addrs[0]}
			maps.Copy(s, tc.with)
			process := rig.Start(t, "run", "-c", writeConfig(t, s))
			if code := process.Exit(t); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			out := process.Stderr.String()
			last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
			if !strings.Contains(last, fmt.Sprintf("exit %d (", tc.code)) {
				t.Errorf("the last line does not name the exit code: %q", last)
			}
			for _, want := range tc.says {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not said", want)
				}
			}
			if strings.Contains(out, "secret-word") {
				t.Error("the password is shown")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// If another process uses the slot, the relay waits for it, unless source.wait_for_slot is false.
func TestSlotInUse(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	first := r.Run(t)
	t.Run("not waiting", func(t *testing.T) {
		second := rig.Start(t, "run", "-c", r.Config, "--set", "source.wait_for_slot=false")
		if code := second.Exit(t); code != 12 {
			t.Errorf("exit code %d, want 12", code)
		}
		if out := second.Stderr.String(); !strings.Contains(out, r.Slot) {
			t.Errorf("the slot is not named:\n%s", out)
		}
	})
	standby := rig.Start(t, "run", "-c", r.Config)
	standby.Logged(t, "standby: another process uses the slot")
	inRole(t, first, "active")
	inRole(t, standby, "standby")
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	first.Terminate(t)
	standby.Logged(t, "streaming")
	inRole(t, standby, "active")
	r.Load.Run(t.Context(), t, 1000)
	r.Arrived(t)
	standby.Terminate(t)
	r.Settle(t, 0)
}

// inRole waits until /readyz reports the role.
func inRole(t *testing.T, process *rig.Process, role string) {
	t.Helper()
	wait.For(t, "readyz to report the role "+role, func() bool {
		code, body := process.Ask(t, "readyz")
		return code == http.StatusOK && body == "ready: "+role+"\n"
	})
}

// If the server has no logical decoding, the relay names the setting to change.
func TestWALLevel(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_level": "replica"}})
	db := pgtest.DatabaseOn(t, srv)
	process := rig.Start(t, "run", "-c", writeConfig(t, map[string]string{
		"dsn": db.DSN, "publication": "p", "slot": "s", "brokers": kafkatest.Fake(t).Addrs[0],
	}))
	if code := process.Exit(t); code != 10 {
		t.Errorf("exit code %d, want 10", code)
	}
	if out := process.Stderr.String(); !strings.Contains(out, "wal_level") {
		t.Errorf("wal_level is not named:\n%s", out)
	}
}

// A row that cannot become a record stops the relay. The relay has delivered and confirmed every earlier
// row, and delivers no later one. After the operator advances the slot past the row, the relay delivers
// the rest.
func TestBadRow(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Broker(t)
	for name, tc := range map[string]struct {
		topic, payload string // of the bad row; an empty topic means the rig's topic
		says           string
	}{
		"illegal topic": {topic: "no such topic!", payload: `{}`, says: "topic name"},
		"too large":     {payload: `{"big": "` + strings.Repeat("x", 2_000_000) + `"}`, says: "max.message.bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig.NewOn(t, pgtest.Database(t), cluster)
			process := r.Run(t, "--set", "outbox.topic=${route}")
			conn := r.Connect(t)
			insert := func(topic, payload string) (id string) {
				return rig.Ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
					VALUES (gen_random_uuid(), $1, 'k', 'T', $2::jsonb) RETURNING id::text`, cmp.Or(topic, r.Topic), payload)
			}
			insert("", `{"n": 1}`)
			r.Confirmed(t)
			before := rig.Ask[string](t, conn, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.Slot)
			id := insert(tc.topic, tc.payload)
			after := rig.Ask[string](t, conn, `SELECT pg_current_wal_lsn()::text`)
			insert("", `{"n": 2}`)

			if code := process.Exit(t); code != 14 {
				t.Errorf("exit code %d, want 14", code)
			}
			out := process.Stderr.String()
			for _, want := range []string{id, tc.says, "transaction 0/", "exit 14 ("} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not said:\n%s", want, out)
				}
			}
			if !rig.Ask[bool](t, conn, `SELECT confirmed_flush_lsn BETWEEN $1::pg_lsn AND $2::pg_lsn - 1 FROM pg_replication_slots WHERE slot_name = $3`, before, after, r.Slot) {
				t.Error("the slot is not between the row before and the bad one")
			}
			if got := len(cluster.ReadAll(t, r.Topic)); got != 1 {
				t.Errorf("%d records, want the one before the bad row", got)
			}

			r.DB.Exec(t, `SELECT pg_replication_slot_advance($1, $2)`, r.Slot, after)
			process = rig.Start(t, "run", "-c", r.Config, "--set", "outbox.topic=${route}", "--accept-gap")
			wait.For(t, "the row behind the bad one", func() bool { return len(cluster.ReadAll(t, r.Topic)) == 2 })
			process.Terminate(t)
		})
	}
}

func replaceUser(dsn, user string) string {
	_, host, _ := strings.Cut(dsn, "@")
	return "postgres://" + user + "@" + host
}

func replaceDatabase(dsn, name string) string {
	base, query, _ := strings.Cut(dsn, "?")
	return base[:strings.LastIndex(base, "/")+1] + name + "?" + query
}

// writeConfig writes a configuration file. It puts dsn, publication, slot, brokers and topic in their
// places, and writes anything else as a dotted key.
func writeConfig(t *testing.T, s map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("startup_timeout: 5s\nsource:\n")
	for _, k := range []string{"dsn", "publication", "slot"} {
		fmt.Fprintf(&b, "  %s: %q\n", k, s[k])
	}
	if s["topic"] != "" {
		fmt.Fprintf(&b, "outbox:\n  topic: %q\n", s["topic"])
	}
	if s["tables"] != "" {
		fmt.Fprintf(&b, "outbox:\n  tables: [%q]\n", s["tables"])
	}
	b.WriteString("sink:\n  kafka:\n    compression: none\n")
	if s["brokers"] != "" {
		fmt.Fprintf(&b, "    brokers: [%q]\n", s["brokers"])
	}
	if v := s["sink.kafka.borkers"]; v != "" {
		fmt.Fprintf(&b, "    borkers: %s\n", v)
	}
	path := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	rig.Must(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}
