package e2e

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestRelayOverWebhook: the receiver verifies each signature, and refuses events at random.
func TestRelayOverWebhook(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it takes seconds, and TestRelayOverJetStream runs always")
	w := &webhookReceiver{t: t, secret: bytes.Repeat([]byte{7}, 32), busy: 100}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	relaysOver(t, w.broker(server.Listener.Addr().String()))
}

// Package net/http writes to the standard logger what a server sends after its response. It must not get into the log of the
// relay.
func TestWebhookAnswersAreNotLogged(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "each response costs a connection")
	const canary = "c4n4ry of the receiver"
	w := &webhookReceiver{t: t, secret: bytes.Repeat([]byte{7}, 32)}
	server := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, req *http.Request) {
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, req)
		conn, _, err := http.NewResponseController(res).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", answer.Code)
		<-time.After(10 * time.Millisecond) // the connection is idle
		fmt.Fprint(conn, canary)
		conn.Close()
	}))
	t.Cleanup(server.Close)
	r := rig.NewOver(t, rig.Database(t), w.broker(server.Listener.Addr().String()))
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 5)
	r.Arrived(t)
	process.Terminate(t)
	if log := process.Stderr.String(); strings.Contains(log, canary) {
		t.Errorf("log:\n%s", log)
	}
}

// A webhookReceiver passes the events of requests to a test, one at a time.
type webhookReceiver struct {
	t      *testing.T
	secret []byte
	busy   int // refuses every so many events, at random; 0: none

	mu     sync.Mutex
	take   func(rig.Received)
	stored int64
}

// broker returns the receiver at addr for a rig.
func (w *webhookReceiver) broker(addr string) rig.Broker {
	dir := w.t.TempDir()
	signing := filepath.Join(dir, "signing")
	rig.Must(w.t, os.WriteFile(signing, []byte("whsec_"+base64.StdEncoding.EncodeToString(w.secret)+"\n"), 0o600))
	config := fmt.Sprintf("position: {file: %q}\nsink: {webhook: {url: %q, signing_secrets_file: %q}}",
		filepath.Join(dir, "position"), "http://"+addr+"/in", signing)
	return rig.Broker{Topic: "orders", Config: config, Collect: w.collect}
}

func (w *webhookReceiver) collect(_ *testing.T, take func(rig.Received)) rig.CatchUp {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take = take
	return func(context.Context) error {
		w.mu.Lock() // an event is passed on before it is stored
		defer w.mu.Unlock()
		return nil
	}
}

func (w *webhookReceiver) ServeHTTP(res http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || req.URL.Path != "/in/orders" {
		res.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil { // the relay was killed
		return
	}
	if !w.signed(req.Header, body) {
		w.t.Errorf("a signature does not verify: %v", req.Header)
	}
	if w.busy > 0 && rand.IntN(w.busy) == 0 {
		res.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	key, err := url.PathUnescape(req.Header.Get("ce-subject"))
	at, timeErr := time.Parse(time.RFC3339, req.Header.Get("ce-time"))
	if err != nil || timeErr != nil {
		w.t.Errorf("the event has a wrong header: %v, %v", err, timeErr)
	}
	w.mu.Lock()
	w.take(rig.Received{Offset: w.stored, Key: []byte(key), Value: body, ID: req.Header.Get("ce-id"), Type: req.Header.Get("ce-type"), Timestamp: at})
	w.stored++
	w.mu.Unlock()
	res.WriteHeader(http.StatusNoContent)
}

// signed verifies a request as Standard Webhooks describes.
func (w *webhookReceiver) signed(h http.Header, body []byte) bool {
	mac := hmac.New(sha256.New, w.secret)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	return strings.TrimPrefix(h.Get("webhook-signature"), "v1,") == base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
