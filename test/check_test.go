package test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Check says before the first start that all is there or will be made, and makes none of it; and
// of what is then broken, in both forms, what mends it.
func TestCheck(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Database(t), kafkatest.Fake(t).Cluster)
	out, code := command(t, "check", "-c", r.config)
	if code != 0 || !strings.Contains(out, "there is no slot "+r.slot+" yet: run creates it") || strings.Contains(out, "fails") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	conn := r.connect(t)
	if n := ask[int](t, conn, `SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)`, r.slot); n != 0 {
		t.Errorf("%d objects were made", n)
	}

	r.run(t).terminate(t)
	r.db.Exec(t, `ALTER PUBLICATION `+publication+` SET (publish = 'delete')`)
	out, code = command(t, "check", "-c", r.config)
	for _, want := range []string{"\nsink\n", "fails    publish ", "→ ALTER PUBLICATION \"" + publication + "\" SET (publish = 'insert')\n", "1 of ", "exit 1 (not ready)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if code != 1 || strings.Count(out, "\nfails ") != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}

	out, code = command(t, "check", "-c", r.config, "--json")
	var conditions []struct{ Group, Condition, Object, State, Found, Fix string }
	must(t, json.NewDecoder(strings.NewReader(out)).Decode(&conditions))
	groups := make(map[string]int)
	for _, c := range conditions {
		groups[c.Group]++
		if (c.State == "fails") != (c.Condition == "publish") || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
	if code != 1 || len(groups) != 2 || groups["source"] < 20 || groups["sink"] < 8 {
		t.Errorf("exit code %d, conditions %v", code, groups)
	}
	for _, args := range [][]string{{"check"}, {"check", "-c", r.config, "--offsets", "x"}, {"check", "-c", r.config, "--timeout", "0s"}} {
		if out, code := command(t, args...); code != 2 {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
}

// A relay tells beside its start what it would not find out by itself, and of what is in order
// nothing.
func TestRunChecks(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Database(t), kafkatest.Fake(t).Cluster)
	r.run(t).terminate(t)
	r.db.Exec(t, `CREATE TABLE bare (LIKE outbox); ALTER PUBLICATION `+publication+` SET (publish = 'insert, delete'); ALTER PUBLICATION `+publication+` ADD TABLE bare`)
	process := start(t, "run", "-c", r.config, "--set", "outbox.tables=outbox,bare")
	process.logged(t, `level=ERROR msg=check condition="replica identity bare"`)
	process.terminate(t)
	if n := process.times("msg=check"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, process.stderr)
	}
}
