package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// adminPaths are the paths that the admin server serves.
var adminPaths = []string{"", "metrics", "livez", "readyz", "status", "history", "config"}

// The admin server reports the relay's real state. It counts records as they are delivered. The relay is
// ready while it delivers, and not ready, with the reason, while Postgres is unreachable.
func TestAdminServer(t *testing.T) {
	t.Parallel()
	r, _, toPostgres, _ := rig.NewCut(t)
	process := r.Run(t)
	r.Deliver(t, 2000)

	delivered := len(r.Kafka.ReadAll(t, r.Topic))
	counted := regexp.MustCompile(`(?m)^outbox_cdc_records_total\{.*topic="` + regexp.QuoteMeta(r.Topic) + `"\} (\S+)$`)
	var status struct {
		State  string
		Ready  bool
		Lag    struct{ Bytes int }
		Totals struct{ Rows, Records int }
	}
	wait.For(t, "the records to be counted", func() bool {
		_, body := process.Ask(t, "status")
		rig.Must(t, json.Unmarshal([]byte(body), &status))
		return status.Totals.Records == delivered
	})
	if status.State != "streaming" || !status.Ready || status.Totals.Rows != delivered {
		t.Errorf("status: %+v, want %d records", status, delivered)
	}
	_, metrics := process.Ask(t, "metrics")
	if counted.FindString(metrics) == "" || strings.Contains(metrics, "outbox_cdc_commit_to_ack_seconds_count 0") {
		t.Errorf("metrics:\n%s", metrics)
	}
	for _, path := range adminPaths {
		if code, body := process.Ask(t, path); code != http.StatusOK {
			t.Errorf("GET /%s: %d %s", path, code, body)
		}
	}

	toPostgres.Refuse()
	unready(t, process, "waiting: ")
	toPostgres.Accept()
	process.Ready(t)
	if code, _ := process.Ask(t, "livez"); code != http.StatusOK {
		t.Errorf("not alive: %d", code)
	}
	process.Terminate(t)
	r.Settle(t, 0)
}

// unready waits until /readyz answers 503 with the reason why.
func unready(t *testing.T, process *rig.Process, why string) {
	t.Helper()
	wait.For(t, "readyz to say "+why, func() bool {
		code, body := process.Ask(t, "readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, why)
	})
}

// The relay stops if an explicitly configured admin port is in use. If the default port is in use, it
// continues, because another relay on the same machine may have the port.
func TestAdminPortTaken(t *testing.T) {
	need.FullRun(t, "TestStartErrors runs always")
	t.Parallel()
	r := rig.New(t)
	first := r.Run(t)
	first.Logged(t, "streaming")
	address := strings.Trim(strings.TrimPrefix(rig.AdminURL.FindStringSubmatch(first.Stderr.String())[1], "http://"), "/")
	rig.Start(t, "run", "-c", r.Config, "--set", "admin.listen="+address).Fails(t, exit.Usage, "address already in use", "admin.listen")
	none := rig.Start(t, "run", "-c", r.Config, "--set", "admin.listen=", "--set", "source.wait_for_slot=false")
	none.Fails(t, exit.SlotInUse)
	if strings.Contains(none.Stderr.String(), "admin server") {
		t.Errorf("an admin server that nobody wants:\n%s", none.Stderr)
	}
	first.Signal(t, syscall.SIGTERM)
	first.Exit(t)
}
