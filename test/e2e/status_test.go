package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A statusOutput is what `status --json` prints.
type statusOutput struct {
	Healthy           bool
	Level, Title, Why string
	Advice            string
	Postgres          struct {
		Error    string
		ExitCode int `json:"exit_code"`
		Slot     *struct {
			Name, Confirmed, Restart string
			Active                   bool
			WALStatus                string `json:"wal_status"`
			LagBytes                 int    `json:"lag_bytes"`
		}
	}
	Relay struct {
		URL, Error string
		Status     *struct {
			State  string
			Ready  bool
			Totals struct{ Records int }
		}
	}
}

// runStatus asks with args, and demands an exit code that goes with what is told.
func runStatus(t *testing.T, r *rig.Rig, args ...string) (s statusOutput) {
	t.Helper()
	out, code := rig.Command(t, append([]string{"status", "-c", r.Config, "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := map[bool]int{true: 0, false: 1}[s.Healthy]; code != want {
		t.Errorf("exit code %d, want %d\n%s", code, want, out)
	}
	return s
}

// TestStatusOfAStoppedRelay: status and check say why a relay has stopped, until the next one has started.
func TestStatusOfAStoppedRelay(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestStatus runs always")
	r := rig.New(t)
	process := r.Run(t)
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('pad', repeat('x', 2000000)))`)
	process.Fails(t, 14, "max.message.bytes")
	s := runStatus(t, r, "--set", "admin.listen=")
	if s.Title != "The relay has stopped with exit code 14" || !strings.Contains(s.Why, "max.message.bytes") || !strings.Contains(s.Advice, "on_bad_record=dead-letter") {
		t.Errorf("status: %+v", s)
	}
	if out, _ := rig.Command(t, "check", "-c", r.Config); !strings.Contains(out, "warning  position record: ") || !strings.Contains(out, "with exit code 14: ") {
		t.Errorf("check:\n%s", out)
	}
	alter(t, r, "max.message.bytes", "3000000")
	process = r.Run(t)
	r.Confirmed(t)
	process.Terminate(t)
	if s := runStatus(t, r, "--set", "admin.listen="); s.Title != "No relay reads the slot" {
		t.Errorf("after another start: %+v", s)
	}
}

// Both sides are asked, and what one of them does not say is said, with what the other does.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if s := runStatus(t, r, "--admin", "127.0.0.1:1"); s.Healthy || s.Title != "No relay has run yet" || !strings.Contains(s.Advice, "outbox-cdc run") || s.Relay.Error == "" {
		t.Errorf("before anything: %+v", s)
	}
	if s := runStatus(t, r, "--admin", "127.0.0.1:1", "--set", "outbox.tables=nowhere"); !strings.Contains(s.Why, `The next start fails: `) || !strings.Contains(s.Why, `table "nowhere" does not exist`) || strings.Contains(s.Advice, "Start it") {
		t.Errorf("without a table: %+v", s)
	}
	process := r.Run(t)
	admin := process.AdminAt(t)
	r.Deliver(t, 100)

	var s statusOutput
	wait.For(t, "the relay to have counted the records", func() bool {
		s = runStatus(t, r, "--admin", admin)
		return s.Relay.Status != nil && s.Relay.Status.Totals.Records >= 100
	})
	if !s.Healthy || s.Level != "good" || s.Title != "Healthy" || s.Relay.Status.State != "streaming" || !s.Relay.Status.Ready {
		t.Errorf("a relay at work: %+v", s)
	}
	if slot := s.Postgres.Slot; slot == nil || slot.Name != r.Slot || !slot.Active || slot.WALStatus != "reserved" || slot.Confirmed == "" || slot.Restart == "" {
		t.Errorf("its slot: %+v", slot)
	}
	out, code := rig.Command(t, "status", "-c", r.Config, "--admin", admin)
	for _, want := range []string{"● Healthy\n", "Slot " + r.Slot, "reserved, active, WAL sender", r.Topic, "Last errors\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not said:\n%s", code, want, out)
		}
	}

	if s := runStatus(t, r, "--set", "admin.listen="); !s.Healthy || s.Title != "The slot is active" || s.Relay.URL != "" {
		t.Errorf("Postgres alone: %+v", s)
	}
	if s := runStatus(t, r, "--admin", "127.0.0.1:1"); s.Healthy || s.Title != "The relay does not respond" || !s.Postgres.Slot.Active || s.Relay.Error == "" {
		t.Errorf("a relay that is elsewhere: %+v", s)
	}
	if s := runStatus(t, r, "--admin", admin, "--dsn", "postgres://u@127.0.0.1:1/db"); s.Healthy || s.Title != "Cannot connect to Postgres from here" ||
		s.Postgres.Error == "" || s.Postgres.ExitCode != 10 || s.Relay.Status == nil {
		t.Errorf("without Postgres: %+v", s)
	}
	if s := runStatus(t, r, "--admin", admin, "--set", "source.slot=another"); s.Healthy || !strings.Contains(s.Relay.Error, "uses slot "+r.Slot) {
		t.Errorf("the relay of another slot: %+v", s)
	}

	standby := rig.Start(t, "run", "-c", r.Config)
	standby.Logged(t, "standby: another process uses the slot")
	wait.For(t, "the other one to stand by", func() bool {
		s = runStatus(t, r, "--admin", standby.AdminAt(t))
		return s.Title == "Standby"
	})
	if !s.Healthy || !s.Relay.Status.Ready {
		t.Errorf("a standby: %+v", s)
	}
	standby.Terminate(t)

	r.AwaitSnapshot(t) // recover needs it
	process.Terminate(t)
	r.Load.Run(t.Context(), t, 10)
	if s := runStatus(t, r, "--admin", admin); s.Healthy || s.Title != "No relay is running" || s.Postgres.Slot.Active || s.Postgres.Slot.LagBytes == 0 {
		t.Errorf("without a relay: %+v", s)
	}
	r.DB.Exec(t, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.Slot)
	if s := runStatus(t, r, "--admin", admin); s.Title != "The next start fails with exit code 15" || !strings.Contains(s.Advice, "outbox-cdc recover") {
		t.Errorf("the slot is ahead: %+v", s)
	}
	r.Refused(t, 15, "advanced")
}

// Where there is no terminal, --watch prints one answer after the other, and ends well.
func TestStatusWatchedThroughAPipe(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestStatusWatchedOnATerminal runs always")
	r := rig.New(t)
	admin := r.Run(t).AdminAt(t)
	watch := rig.Start(t, "status", "-c", r.Config, "--admin", admin, "--watch")
	watch.LoggedTimes(t, "● Healthy", 2)
	watch.Signal(t, syscall.SIGINT)
	if code := watch.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := watch.Stderr.String(); strings.Contains(out, "\x1b") {
		t.Errorf("a pipe is taken for a terminal: %q", out)
	}
}

// A health check says in one line what the relay says, and its exit code is 0 or 1, whatever is wrong.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it runs the command many times")
	r, _, toPostgres, _ := rig.NewCut(t)
	process := r.Run(t)
	listen := "OUTBOX_CDC_ADMIN_LISTEN=" + process.AdminAt(t)
	health := func(variable string, args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), rig.Binary(t), append([]string{"healthcheck"}, args...)...)
		cmd.Env = []string{variable}
		out, _ := cmd.CombinedOutput()
		if strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: not one line: %q", args, out)
		}
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}
	if out, code := health(listen); out != "alive" || code != 0 {
		t.Errorf("%q, exit code %d", out, code)
	}
	wait.For(t, "the relay to be ready", func() bool {
		out, code := health(listen, "--ready")
		return out == "ready: active" && code == 0
	})
	toPostgres.Refuse()
	wait.For(t, "it not to be ready, and to say why", func() bool {
		out, code := health(listen, "--ready", "-c", r.Config)
		return strings.HasPrefix(out, "waiting: ") && code == 1
	})
	if out, code := health(listen); out != "alive" || code != 0 {
		t.Errorf("without Postgres: %q, exit code %d", out, code)
	}
	process.Kill(t)
	if out, code := health(listen, "--set", "admin.listen="); !strings.Contains(out, "admin.listen is empty") || code != 1 {
		t.Errorf("no admin server: %q, exit code %d", out, code)
	}
	for variable, want := range map[string]string{
		listen:                        "no response from ",
		"OUTBOX_CDC_ADMIN_LISTEN=x":   "admin.listen",
		"OUTBOX_CDC_ADMIN_LISTEN=:0":  "the relay's log names the port",
		"OUTBOX_CDC_ADMIN_LISTEM=:80": "OUTBOX_CDC_ADMIN_LISTEM",
	} {
		if out, code := health(variable); !strings.Contains(out, want) || code != 1 {
			t.Errorf("%s: %q, exit code %d", variable, out, code)
		}
	}
}
