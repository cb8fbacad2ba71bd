package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Before the first start, check reports what exists and what run creates, and creates nothing itself.
// After something breaks, check reports how to fix it, as text and as JSON.
func TestCheck(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	out, code := rig.Command(t, "check", "-c", r.Config, "--all")
	if code != 0 || !strings.Contains(out, "slot "+r.Slot+" does not exist; run creates it") || !strings.Contains(out, ": 0 failed, ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	conn := r.Connect(t)
	if n := rig.Ask[int](t, conn, `SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)`, r.Slot); n != 0 {
		t.Errorf("%d objects were made", n)
	}

	r.Run(t).Terminate(t)
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'delete')`)
	out, code = rig.Command(t, "check", "-c", r.Config)
	for _, want := range []string{"fails    publish: ", "→ ALTER PUBLICATION \"" + rig.Publication + "\" SET (publish = 'insert'), then outbox-cdc recover", "1 of ", "exit 1 (not ready)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if code != 1 || strings.Count(out, "fails ") != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}

	out, code = rig.Command(t, "check", "-c", r.Config, "--json")
	var conditions []struct{ Group, Condition, Object, State, Found, Fix string }
	rig.Must(t, json.NewDecoder(strings.NewReader(out)).Decode(&conditions))
	groups := make(map[string]int)
	for _, c := range conditions {
		groups[c.Group]++
		if (c.State == "fails") != (c.Condition == "publish") || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
	if code != 1 || len(groups) != 3 || groups["configuration"] != 1 || groups["source"] < 20 || groups["sink"] < 8 {
		t.Errorf("exit code %d, conditions %v", code, groups)
	}
	for _, args := range [][]string{{"check"}, {"check", "-c", r.Config, "--offsets", "x"}, {"check", "-c", r.Config, "--timeout", "0s"}} {
		if out, code := rig.Command(t, args...); code != 2 {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
}

// At its start, the relay logs only failed checks that nothing else would reveal.
func TestRunChecks(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Run(t).Terminate(t)
	r.DB.Exec(t, `CREATE TABLE bare (LIKE outbox); ALTER PUBLICATION `+rig.Publication+` SET (publish = 'insert, delete'); ALTER PUBLICATION `+rig.Publication+` ADD TABLE bare`)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "outbox.tables=outbox,bare")
	process.Logged(t, `level=ERROR msg=check condition="replica identity bare"`)
	process.Terminate(t)
	if n := process.Times("msg=check"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, process.Stderr)
	}
}
