package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
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
		"missing table":       {setting{"publication": "new", "slot": "errors_new", "tables": "no_such_table"}, 13, []string{"no_such_table", "outbox-cdc migrate up --dsn \"$OWNER_DSN\" --table no_such_table"}},
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

// If another process uses the slot, the relay waits for it, and takes over when it ends.
func TestSlotInUse(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	first := r.Run(t)
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

// A relay under another name than the last one of the slot does not find the position record, and must not start without it.
func TestAnotherName(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/check tests the condition always")
	r := rig.New(t)
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 100)
	r.Confirmed(t)
	process.Kill(t)
	name := r.Slot + "_other" // the broker may have the record of an earlier run
	other := []string{"run", "-c", r.Config, "--set", "name=" + name}
	rig.Start(t, other...).Fails(t, exit.Source, `is recorded under the name \"`+r.Slot+`\", and the name of this relay is \"`+name+`\"`, "--accept-gap")
	if s := runStatus(t, r, "--set", "name="+name); s.Title != "The next start fails with exit code 10" || !strings.Contains(s.Why, `is recorded under the name "`+r.Slot+`"`) {
		t.Errorf("status: %+v", s)
	}
	process = rig.Start(t, append(other, "--accept-gap")...)
	process.Logged(t, "streaming")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Terminate(t)
	process = rig.Start(t, other...)
	process.Logged(t, "streaming")
	process.Terminate(t)
}

// inRole waits until /readyz reports the role.
func inRole(t *testing.T, process *rig.Process, role string) {
	t.Helper()
	wait.For(t, "readyz to report the role "+role, func() bool {
		code, body := process.Ask(t, "readyz")
		return code == http.StatusOK && body == "ready: "+role+"\n"
	})
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
