package brokertest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Webhook starts a receiver. At random, it refuses events.
func Webhook(t *testing.T) *Broker {
	t.Helper()
	w := &webhookReceiver{}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	position := filepath.Join(t.TempDir(), "position")
	return &Broker{
		Addr: server.Listener.Addr().String(), Topic: "events", Timed: true,
		Config: func(addr string) string {
			return fmt.Sprintf("position: {file: %q}\nsink: {webhook: {url: %q}}", position, "http://"+addr+"/")
		},
		Collect: func(_ *testing.T, f Collect) rig.CatchUp {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.collect = f
			return collected
		},
	}
}

// A webhookReceiver stores events. At random, it refuses some.
type webhookReceiver struct {
	mu      sync.Mutex
	collect Collect
	stored  int64
}

func (w *webhookReceiver) ServeHTTP(res http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		res.WriteHeader(http.StatusMethodNotAllowed) // check asks for what is allowed
		return
	}
	body, err := io.ReadAll(req.Body)
	switch {
	case err != nil: // the relay was killed
		return
	case rand.IntN(100) == 0:
		res.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored++
	w.collect(Arrival{Number: w.stored, Key: []byte(req.Header.Get("ce-subject")), Value: body, Stored: time.Now(), Header: func(name string) string {
		switch name {
		case "id":
			return req.Header.Get("ce-id")
		case "eventType":
			return req.Header.Get("ce-type")
		}
		return req.Header.Get("Outbox-" + name)
	}})
	res.WriteHeader(http.StatusNoContent)
}
