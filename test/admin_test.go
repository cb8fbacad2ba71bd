package test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// adminPaths are those the admin server answers.
func adminPaths() []string {
	return []string{"", "metrics", "livez", "readyz", "status", "history", "config"}
}

var adminURL = regexp.MustCompile(`msg="admin server".* url=(\S+)`)

// ask returns what the relay's admin server answers.
func (r *relayProcess) ask(t *testing.T, path string) (status int, body string) {
	t.Helper()
	r.logged(t, `msg="admin server"`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, adminURL.FindStringSubmatch(r.stderr.String())[1]+path, nil)
	must(t, err)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(data)
}

// What the admin server tells is what happens: records counted as they are delivered, ready
// while they are, and not ready, with the reason, while a side is gone.
func TestAdminServer(t *testing.T) {
	t.Parallel()
	r, _, toPostgres, toKafka := cutRig(t)
	process := r.run(t)
	r.load.run(t.Context(), t, 2000)
	r.arrived(t, 30*time.Second)
	r.confirmed(t, 30*time.Second)

	delivered := len(r.kafka.ReadAll(t, r.topic))
	counted := regexp.MustCompile(`(?m)^outbox_cdc_records_total\{.*topic="` + regexp.QuoteMeta(r.topic) + `"\} (\S+)$`)
	var status struct {
		State  string
		Ready  bool
		Lag    struct{ Bytes int }
		Totals struct{ Rows, Records int }
	}
	waitFor(t, 5*time.Second, "the records to be counted", func() bool {
		_, body := process.ask(t, "status")
		must(t, json.Unmarshal([]byte(body), &status))
		return status.Totals.Records == delivered
	})
	if status.State != "streaming" || !status.Ready || status.Totals.Rows != delivered {
		t.Errorf("status: %+v, want %d records", status, delivered)
	}
	_, metrics := process.ask(t, "metrics")
	if counted.FindString(metrics) == "" || strings.Contains(metrics, "outbox_cdc_commit_to_ack_seconds_count 0") {
		t.Errorf("metrics:\n%s", metrics)
	}
	for _, path := range adminPaths() {
		if code, body := process.ask(t, path); code != http.StatusOK {
			t.Errorf("GET /%s: %d %s", path, code, body)
		}
	}

	toPostgres.Refuse()
	toPostgres.Cut()
	r.unready(t, process, "waiting: ")
	must(t, toPostgres.Accept())
	waitFor(t, 30*time.Second, "the relay to be ready", func() bool { code, _ := process.ask(t, "readyz"); return code == http.StatusOK })
	toKafka.Refuse()
	toKafka.Cut()
	r.load.run(t.Context(), t, 100)
	r.unready(t, process, "Kafka has not acknowledged")
	must(t, toKafka.Accept())
	r.arrived(t, 60*time.Second)
	if code, _ := process.ask(t, "livez"); code != http.StatusOK {
		t.Errorf("not alive: %d", code)
	}
	process.terminate(t)
	r.settle(t, 0)
}

// unready waits until the relay says that it is not ready, and why.
func (r *rig) unready(t *testing.T, process *relayProcess, why string) {
	t.Helper()
	waitFor(t, 60*time.Second, "readyz to say "+why, func() bool {
		code, body := process.ask(t, "readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, why)
	})
}

// A port that somebody asked for has to be free; of the default one another relay on the same
// machine may have it.
func TestAdminPortTaken(t *testing.T) {
	t.Parallel()
	r, _ := fakeRig(t)
	first := r.run(t)
	first.logged(t, "streaming")
	address := strings.Trim(strings.TrimPrefix(adminURL.FindStringSubmatch(first.stderr.String())[1], "http://"), "/")
	start(t, "run", "-c", r.config, "--set", "admin.listen="+address).fails(t, relay.ExitUsage, "address already in use", "admin.listen")
	none := start(t, "run", "-c", r.config, "--set", "admin.listen=", "--set", "source.wait_for_slot=false")
	none.fails(t, relay.ExitSlotInUse)
	if strings.Contains(none.stderr.String(), "admin server") {
		t.Errorf("an admin server that nobody wants:\n%s", none.stderr)
	}
	first.signal(t, syscall.SIGTERM)
	first.exit(t, 10*time.Second)
}
