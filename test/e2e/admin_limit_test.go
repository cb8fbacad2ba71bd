package e2e

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Idle connections to the admin port do not disturb the relay. It still has file descriptors for new
// connections to Postgres and Kafka, answers probes, and needs no more memory than before.
func TestIdleConnectionsToTheAdminPort(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for idle connections to be closed")
	const idle, files = 4000, 128
	r, _, toPostgres, toKafka := rig.NewCut(t)
	process := rig.StartProgram(t, "/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" run -c "$1"`, files), rig.Binary(t), r.Config)
	process.Logged(t, "streaming")
	r.Deliver(t, 100)
	process.Ready(t)
	before := process.Memory(t)
	for n := range idle {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", process.AdminAt(t))
		rig.Must(t, err)
		defer conn.Close()
		if n%2 == 0 { // half of them have received a response
			_, err = conn.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			rig.Must(t, err)
		}
	}
	probe := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second} // like the kubelet's probe
	asks := func(path string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+process.AdminAt(t)+"/"+path, nil)
		rig.Must(t, err)
		res, err := probe.Do(req)
		rig.Must(t, err)
		rig.Must(t, res.Body.Close())
		if res.StatusCode != http.StatusOK {
			t.Errorf("GET /%s: %s", path, res.Status)
		}
	}
	asks("livez")
	asks("readyz")
	after := process.Memory(t)
	t.Logf("%d idle connections: %d MB before, %d MB after", idle, before.Now, after.Now)
	process.Flat(t)

	toPostgres.Cut()
	toKafka.Cut()
	r.Deliver(t, 100)
	process.Ready(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
