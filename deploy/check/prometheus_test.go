package check

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// promtool accepts rules and configuration, and each alert fires when it should.
func TestPromtool(t *testing.T) {
	promtool := filepath.Join(t.TempDir(), "promtool")
	// Build without service discovery, which is the largest part and not needed here.
	run(t, "go", "build", "-tags=remove_all_sd", "-o", promtool, "github.com/prometheus/prometheus/cmd/promtool")
	run(t, promtool, "check", "rules", "--lint=all", "--lint-fatal", "../prometheus/alerts.yaml")
	run(t, promtool, "check", "config", "../prometheus/prometheus.yaml")
	run(t, promtool, "test", "rules", "../prometheus/alerts_test.yaml")
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(metrics(t))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// metrics returns the metrics of the built relay, including those for spans, while it waits for its servers.
func metrics(t *testing.T) string {
	t.Helper()
	relay := filepath.Join(t.TempDir(), "outbox-cdc")
	run(t, "go", "-C", "../..", "build", "-o", relay, "./cmd/outbox-cdc")
	cmd := exec.CommandContext(t.Context(), relay, "run", "--dsn", "postgres://127.0.0.1:1/none", "--publication", "p", "--slot", "s",
		"--brokers", "127.0.0.1:1", "--set", "admin.listen=127.0.0.1:0", "--set", "tracing.endpoint=http://127.0.0.1:1", "--set", "log.format=text")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), `msg="admin server" url=`); ok {
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // ends when the process exits
			return get(t, url+"metrics")
		}
	}
	t.Fatal("the relay has no admin server")
	return ""
}

// get returns the body at url. It waits until the server responds.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), "outbox_cdc_spans_total") {
		t.Fatalf("%v\n%s", err, body)
	}
	return string(body)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// Every query of the dashboard is valid PromQL.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "../grafana/dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", "outbox-cdc", "$instance", ".*")
	ids := map[int]bool{}
	queries := 0
	for i, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			queries++
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(target.Expr)); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
		for _, other := range dashboard.Panels[:i] {
			a, b := panel.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies over %s", panel.Title, other.Title)
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries", queries)
	}
}
