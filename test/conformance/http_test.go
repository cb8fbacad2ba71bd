package conformance

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A request is what a receiver reads of a record that is sent over HTTP, apart from headers about the event.
type request struct {
	Path        string `json:"path"`
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
}

// With the imported configuration of Debezium Server's sink http, the relay sends the same bodies to the same URL. They were
// recorded with Debezium Server 3.6.0.
func TestServerHTTP(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []request
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPost {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, request{r.URL.Path, r.Header.Get("content-type"), string(body)})
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()

	content := func(name string) string {
		data, err := os.ReadFile(filepath.Join("http", name))
		rig.Must(t, err)
		return string(data)
	}
	setup, err := parseScript(content("setup.sql"))
	rig.Must(t, err)
	rows, err := parseScript(content("rows.sql"))
	rig.Must(t, err)
	var want []request
	for line := range strings.Lines(content("requests.jsonl")) {
		var r request
		rig.Must(t, json.Unmarshal([]byte(line), &r))
		want = append(want, r)
	}

	db := pgtest.Database(t)
	rig.Must(t, setup.run(t.Context(), db.DSN))
	c := &recordedCase{configFile: serverConfig, config: strings.ReplaceAll(content(serverConfig), "${RECEIVER}", receiver.URL), rows: rows}
	var o outcome
	o.runImported(t, c, db, kafkatest.Fake(t).Cluster, nil, "--set", "position.file="+filepath.Join(t.TempDir(), "position"))
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.output)
	}
	byBody := func(a, b request) int { return cmp.Compare(a.Body, b.Body) }
	slices.SortFunc(got, byBody)
	slices.SortFunc(want, byBody)
	if !slices.Equal(got, want) {
		t.Errorf("requests are %q, want %q", got, want)
	}
}
