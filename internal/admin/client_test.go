package admin

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

func TestClientAddress(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:9187": "http://127.0.0.1:9187/", ":9187": "http://127.0.0.1:9187/", "0.0.0.0:9187": "http://127.0.0.1:9187/",
		"[::]:9187": "http://127.0.0.1:9187/", "[::1]:9187": "http://[::1]:9187/", "relay.example.com:80": "http://relay.example.com:80/",
		"http://relay:9187": "http://relay:9187/", "https://ops.example.com/orders/?x=1": "https://ops.example.com/orders/",
		"127.0.0.1:0": "", "": "", "relay": "", "ftp://relay": "", "http://": "", "http://user:secret@relay": "",
	} {
		c, err := NewClient(address)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is parsed as %s", address, c.Address())
		case want != "" && (err != nil || c.Address() != want):
			t.Errorf("%q: %v, want %s", address, err, want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: %v", address, err)
		}
	}
}

func client(t *testing.T, address string) *Client {
	t.Helper()
	c, err := NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A client returns the values of the server. An unknown value is NaN.
func TestClient(t *testing.T) {
	st := healthy()
	_, url := serve(t, nil, func() relay.Stat { return st })
	c := client(t, url)
	got, body, err := c.Status(t.Context())
	if err != nil || !json.Valid(body) {
		t.Fatalf("%v\n%s", err, body)
	}
	if got.Name != "orders" || !got.Ready || got.Slot.Name != "orders" || *got.Slot.Safe != 10_700_000_000 || len(got.Topics) != 2 {
		t.Errorf("%+v", got)
	}
	if !math.IsNaN(float64(got.Latency.AckP50)) {
		t.Errorf("latency without a measurement: %v", got.Latency)
	}
	h, err := c.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(h.Points); n == 0 || len(h.Column("at")) != n || h.Column("slot_safe_bytes")[n-1] != 10_700_000_000 || h.Column("else") != nil {
		t.Errorf("%+v", h)
	}
	n := len(h.Points)
	h.Follow(got)
	h.Follow(got)
	if len(h.Points) > n+1 {
		t.Errorf("%d points became %d", n, len(h.Points))
	}
	later := *got
	later.Point[columnAt] += 100
	h.Follow(&later)
	if at := h.Column("at"); at[len(at)-1] != float64(later.Point[columnAt]) {
		t.Errorf("a new point is missing: %v", at)
	}
	if says, well, err := c.Live(t.Context()); says != "alive" || !well || err != nil {
		t.Errorf("%q %t %v", says, well, err)
	}
	if says, well, err := c.Ready(t.Context()); says != "ready: active" || !well || err != nil {
		t.Errorf("%q %t %v", says, well, err)
	}
}

func TestClientOfOneThatIsNotWell(t *testing.T) {
	st := healthy()
	st.State, st.Role, st.LastError = relay.Waiting, relay.NoRole, "the server is starting"
	_, url := serve(t, nil, func() relay.Stat { return st })
	if says, well, err := client(t, url).Ready(t.Context()); says != "waiting: the server is starting" || well || err != nil {
		t.Errorf("%q %t %v", says, well, err)
	}
}

// If the server is not a relay, the error says so and does not contain the response.
func TestClientOfSomethingElse(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"another program": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("c4n4ry")) },
		"other JSON":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"c4n4ry": 1}`)) },
		"no such page":    http.NotFound,
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://c4n4ry.example.com/", http.StatusFound)
		},
	} {
		srv := httptest.NewServer(answer)
		_, _, err := client(t, srv.URL).Status(t.Context())
		srv.Close()
		if err == nil || !strings.Contains(err.Error(), "is not the admin server") || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("%s: %v", name, err)
		}
	}
	forbids := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbids.Close()
	if _, _, err := client(t, forbids.URL).Live(t.Context()); err == nil || !strings.Contains(err.Error(), "admin.hosts") {
		t.Errorf("a server that rejects the host name: %v", err)
	}
	srv := httptest.NewServer(nil)
	srv.Close()
	if _, _, err := client(t, srv.URL).Live(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "no response from "+srv.URL+"/: dial tcp") {
		t.Errorf("no server: %v", err)
	}
}

// A frozen process accepts connections, as its kernel does that, and does not respond.
func TestClientOfAFrozenServer(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // its connections are never read
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := client(t, listener.Addr().String())
	c.http.Timeout = 100 * time.Millisecond
	if _, _, err := c.Status(t.Context()); !errors.Is(err, ErrSilent) || err.Error() != c.base+" accepts the connection but does not respond" {
		t.Errorf("a frozen server: %v", err)
	}
	c.http.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		<-t.Context().Done()
		return nil, t.Context().Err()
	}}
	if _, _, err := c.Status(t.Context()); err == nil || errors.Is(err, ErrSilent) {
		t.Errorf("a network that drops packets: %v", err)
	}
}
