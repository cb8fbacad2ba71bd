package rig

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// AdminURL finds the address of the admin server in the relay's log.
var AdminURL = regexp.MustCompile(`msg="admin server".* url=(\S+)`)

// Ask sends a GET request for path to the relay's admin server and returns the response.
func (r *Process) Ask(t *testing.T, path string) (status int, body string) {
	t.Helper()
	r.Logged(t, `msg="admin server"`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, AdminURL.FindStringSubmatch(r.Stderr.String())[1]+path, nil)
	Must(t, err)
	res, err := http.DefaultClient.Do(req)
	Must(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	Must(t, err)
	return res.StatusCode, string(data)
}

// Ready waits until /readyz responds with 200.
func (r *Process) Ready(t *testing.T) {
	t.Helper()
	wait.For(t, "the relay to be ready", func() bool { code, _ := r.Ask(t, "readyz"); return code == http.StatusOK })
}

// AdminAt returns the host:port of the relay's admin server.
func (r *Process) AdminAt(t *testing.T) string {
	t.Helper()
	r.Logged(t, `msg="admin server"`)
	return strings.Trim(strings.TrimPrefix(AdminURL.FindStringSubmatch(r.Stderr.String())[1], "http://"), "/")
}
