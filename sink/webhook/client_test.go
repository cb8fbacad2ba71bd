package webhook

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// onLine is a log that calls the function at each line.
type onLine func()

func (f onLine) Write(line []byte) (int, error) {
	f()
	return len(line), nil
}

// serve starts a server for a test.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// start opens cfg and starts a Writer.
func start(t *testing.T, cfg Config, w sink.WriterConfig) *sinktest.Session {
	t.Helper()
	j := sinktest.NewJournal()
	opened, err := cfg.Open(sinktest.Context(t), j.Logger())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { opened.Close() })
	return sinktest.StartSession(t, opened, j, w)
}

func send(t *testing.T, s *sinktest.Session, seq uint64, topic, key string) {
	t.Helper()
	err := s.Writer.Send(sinktest.Context(t), &sink.Record{
		Seq: seq, Topic: topic, Partition: sink.AnyPartition, Key: []byte(key), Value: []byte(`{"s3cr3t":1}`), Timestamp: time.Now(),
		Headers: header("id", fmt.Sprint(seq), "eventType", "t"),
	})
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	s.Writer.Flush()
}

// TestStall: each status that a person has to do something about stalls its destination with a reason, and with advice. What
// the server has sent does not appear. Another destination goes on.
func TestStall(t *testing.T) {
	for _, code := range []int{301, 308, 401, 403, 404, 405, 410} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			var healed atomic.Bool
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/bad" || healed.Load() {
					return
				}
				w.Header().Set("Location", "/s3cr3t")
				w.WriteHeader(code)
				fmt.Fprint(w, "s3cr3t")
			})
			s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
			send(t, s, 1, "bad", "k")
			send(t, s, 2, "good", "k")
			s.Await("a stall", func() bool { return s.Acked() == 1 && !s.Sink.Stat().StalledSince.IsZero() })
			st := s.Sink.Stat()
			if !strings.Contains(st.StallReason, fmt.Sprintf("/bad: HTTP %d %s: ", code, http.StatusText(code))) || !s.IsAcked(2) {
				t.Errorf("stall %q", st.StallReason)
			}
			healed.Store(true)
			s.Drain(2)
			if text := s.Journal.String(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, fmt.Sprint(code)) || !strings.Contains(text, "fix=") {
				t.Errorf("log:\n%s", text)
			}
		})
	}
}

// TestRejected: other codes of 4xx reject the record.
func TestRejected(t *testing.T) {
	for code, large := range map[int]bool{400: false, 422: false, 413: true} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.Error(w, "s3cr3t", code)
			}
		})
		s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
		send(t, s, 1, "a", "k")
		err := s.Wait()
		e, ok := errors.AsType[*sink.RecordError](err)
		if !ok || e.Seq != 1 || e.Topic != "a" || e.TooLarge != large || e.Code != fmt.Sprint(code) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%d: %+v", code, err)
		}
	}
}

// TestIllegalDestination: a row that chooses a destination that is not allowed is rejected, without a request.
func TestIllegalDestination(t *testing.T) {
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			t.Errorf("a request to %s", r.URL)
		}
	})
	for _, topic := range []string{"../admin", "https://evil.example/", server.URL + "/a"} {
		s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
		send(t, s, 1, topic, "k")
		if e, ok := errors.AsType[*sink.RecordError](s.Wait()); !ok || e.Reason == nil {
			t.Errorf("%s: %v", topic, e)
		}
	}
}

// TestPause: after 429 or 503 with Retry-After, a destination gets no request of any key until the pause is over.
func TestPause(t *testing.T) {
	for name, pause := range map[string]func() string{
		"seconds": func() string { return "1" },
		"date":    func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var until time.Time
			early := 0
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.Method != http.MethodPost:
				case until.IsZero():
					until = time.Now().Add(900 * time.Millisecond)
					w.Header().Set("Retry-After", pause())
					w.WriteHeader(http.StatusServiceUnavailable)
				case time.Now().Before(until):
					early++
				}
			})
			s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
			send(t, s, 1, "a", "k")
			s.Await("the pause", func() bool { return s.Sink.Stat().Retries > 0 })
			if got := s.Sink.Stat().LastError; !strings.Contains(got, "; the receiver asks for a pause of ") {
				t.Errorf("last error %q", got)
			}
			for seq := range uint64(20) {
				send(t, s, seq+2, "a", fmt.Sprint(seq))
			}
			s.AwaitAcked(21)
			if early > 0 {
				t.Errorf("%d requests in the pause", early)
			}
		})
	}
}

// TestHangingServer: a server that hangs uses its own connections only.
func TestHangingServer(t *testing.T) {
	release := make(chan struct{})
	var mu sync.Mutex
	sending, most := 0, 0
	hanging := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		mu.Lock()
		sending++
		most = max(most, sending)
		mu.Unlock()
		<-release
		mu.Lock()
		sending--
		mu.Unlock()
	})
	good := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := start(t, Config{Origins: []string{hanging.URL, good.URL}, Concurrency: 3}, sink.WriterConfig{})
	for seq := range uint64(20) {
		send(t, s, seq, hanging.URL+"/a", fmt.Sprint(seq))
	}
	for seq := range uint64(20) {
		send(t, s, 100+seq, good.URL+"/a", fmt.Sprint(seq))
	}
	s.AwaitAcked(20)
	s.Await("three requests to the hanging server", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return most >= 3
	})
	close(release)
	s.Drain(40)
	if most > 3 {
		t.Errorf("%d requests at the same time, want 3", most)
	}
}

// TestTimeout: a request without a response is sent again, with the same id and a new signature.
func TestTimeout(t *testing.T) {
	var mu sync.Mutex
	var ids, signatures []string
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		ids, signatures = append(ids, r.Header.Get("Idempotency-Key"), r.Header.Get("webhook-id")), append(signatures, r.Header.Get("webhook-signature"))
		first := len(signatures) == 1
		mu.Unlock()
		if first {
			<-r.Context().Done()
		}
	})
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	s := start(t, Config{URL: server.URL, Timeout: 1100 * time.Millisecond, Secrets: func() ([]string, error) { return []string{secret}, nil }}, sink.WriterConfig{})
	send(t, s, 1, "a", "k")
	s.AwaitAcked(1)
	mu.Lock()
	defer mu.Unlock()
	if len(ids) < 4 || ids[0] != "1" || ids[1] != "1" || ids[2] != "1" || ids[3] != "1" || signatures[0] == signatures[1] {
		t.Errorf("ids %q, signatures %q", ids, signatures)
	}
	if st := s.Sink.Stat(); !strings.Contains(st.LastError, "no response within 1.1s") {
		t.Errorf("last error %q", st.LastError)
	}
}

// TestCredentials: the header Authorization is read again after a 401, and only servers that are named get it.
func TestCredentials(t *testing.T) {
	var token atomic.Value
	token.Store("Bearer old")
	var seen sync.Map
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		seen.Store(r.Host, r.Header.Get("Authorization"))
		if r.URL.Path == "/in" && r.Header.Get("Authorization") != "Bearer new" {
			token.Store("Bearer new")
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	named, other := serve(t, handler), serve(t, handler)
	anyPort := strings.Replace(other.URL, "127.0.0.1", "*.localhost", 1)
	otherURL := strings.Replace(other.URL, "127.0.0.1", "a.localhost", 1)
	cfg := Config{
		Origins: []string{named.URL, anyPort}, Authorization: func(context.Context) (string, error) { return token.Load().(string), nil },
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, strings.Replace(addr, "a.localhost", "127.0.0.1", 1))
		},
	}
	s := start(t, cfg, sink.WriterConfig{})
	send(t, s, 1, named.URL+"/in", "k")
	send(t, s, 2, otherURL+"/hook", "k")
	s.Drain(2)
	if got, _ := seen.Load(strings.TrimPrefix(named.URL, "http://")); got != "Bearer new" {
		t.Errorf("the named server got %q", got)
	}
	if got, _ := seen.Load(strings.TrimPrefix(otherURL, "http://")); got != "" {
		t.Errorf("the other server got %q", got)
	}
	if strings.Contains(s.Journal.String(), "Bearer") {
		t.Errorf("log:\n%s", s.Journal)
	}
}

// TestRefusePrivate: a connection to this machine is refused, whatever the name is.
func TestRefusePrivate(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") })
	_, err := Config{URL: server.URL, RefusePrivate: true}.Open(sinktest.Context(t), sinktest.NewJournal().Logger())
	if !errors.Is(err, sink.ErrMissing) || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("Open: %v", err)
	}
	pattern := strings.Replace(server.URL, "127.0.0.1", "*", 1)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		asked := make(chan struct{})
		s := start(t, Config{Origins: []string{pattern}, RefusePrivate: true}, sink.WriterConfig{
			GiveUp: sync.OnceValue(func() func(sink.Missing) bool { return func(sink.Missing) bool { close(asked); return true } })(),
		})
		send(t, s, 1, strings.Replace(server.URL, "127.0.0.1", host, 1)+"/a", "k")
		if e, ok := errors.AsType[*sink.RecordError](s.Wait()); !ok || e.Seq != 1 {
			t.Errorf("%s: %v", host, s.Wait())
		}
		<-asked
	}
}

// TestOpen: the first contact fails at once if a retry does not help, and tells how to fix it.
func TestOpen(t *testing.T) {
	authority, unknown := certtest.New(), certtest.New()
	soon := time.Now().Add(time.Hour)
	serveTLS := func(clients bool, names ...string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(soon, names...).TLS}}
		if clients {
			s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool()
		}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	with := func(a *certtest.Authority, own ...tls.Certificate) func() (*tls.Config, error) {
		return func() (*tls.Config, error) { return &tls.Config{RootCAs: a.Pool(), Certificates: own}, nil }
	}
	good, other, clients := serveTLS(false, "127.0.0.1"), serveTLS(false, "other.example"), serveTLS(true, "127.0.0.1")
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	silent, err := serverproc.ReservePort() // no other test listens on it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(silent.Close)
	closed := "http://" + silent.Addr()
	for _, tt := range []struct {
		name string
		cfg  Config
		want error
		text string
	}{
		{"good", Config{URL: good.URL, TLS: with(authority)}, nil, ""},
		{"client certificate", Config{URL: clients.URL, TLS: with(authority, authority.Issue(soon, "relay").TLS)}, nil, ""},
		{"unknown authority", Config{URL: good.URL, TLS: with(unknown)}, sink.ErrAccess, "trusted authority"},
		{"another name", Config{URL: other.URL, TLS: with(authority)}, sink.ErrAccess, "another name"},
		{"no client certificate", Config{URL: clients.URL, TLS: with(authority)}, sink.ErrAccess, "client certificate"},
		{"no TLS", Config{URL: strings.Replace(plain.URL, "http://", "https://", 1), TLS: with(authority)}, sink.ErrAccess, "does not speak TLS"},
		{"nobody listens", Config{URL: closed}, sink.ErrUnreachable, "refused"},
		{"one of two", Config{Origins: []string{closed, plain.URL}}, nil, ""},
		{"only a pattern", Config{Origins: []string{"https://*"}}, nil, ""},
		{"unreadable secret", Config{URL: plain.URL, Secrets: func() ([]string, error) { return []string{"s3cr3t"}, nil }}, sink.ErrUnreachable, "signing secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(sinktest.Context(t))
			defer cancel()
			logger := slog.New(slog.DiscardHandler)
			if errors.Is(tt.want, sink.ErrUnreachable) {
				logger = slog.New(slog.NewTextHandler(onLine(cancel), nil)) // Open logs the first failure, and retries
			}
			opened, err := tt.cfg.Open(ctx, logger)
			if !errors.Is(err, tt.want) || err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "s3cr3t")) {
				t.Errorf("Open: %v", err)
			}
			if advised, ok := errors.AsType[sink.Advised](err); err != nil && (!ok || advised.Advice() == "") {
				t.Error("the error has no advice")
			}
			if err == nil {
				opened.Close()
			}
		})
	}
}

// TestProxy: requests go through the proxy, which resolves the name.
func TestProxy(t *testing.T) {
	var hosts sync.Map
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { hosts.Store(r.URL.String(), r.Method) })
	at, _ := url.Parse(proxy.URL)
	s := start(t, Config{URL: "http://hooks.example.invalid/in", Proxy: http.ProxyURL(at)}, sink.WriterConfig{})
	send(t, s, 1, "a", "k")
	s.Drain(1)
	if method, ok := hosts.Load("http://hooks.example.invalid/in/a"); !ok || method != http.MethodPost {
		t.Error("the proxy got no request")
	}
}

// TestProxyTLS: a proxy sees the name of the server and nothing else. The relay verifies the certificate of the server.
func TestProxyTLS(t *testing.T) {
	r := newReceiver(t, true)
	r.create("a")
	var tunnels atomic.Int64
	proxy := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodConnect {
			t.Errorf("the proxy got %s", req.Method)
			return
		}
		tunnels.Add(1)
		up, err := (&net.Dialer{}).DialContext(req.Context(), "tcp", req.Host)
		if err != nil {
			t.Error(err)
			return
		}
		down, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(up, down)
			up.Close()
		}()
		_, _ = io.Copy(down, up)
		down.Close()
	})
	at, _ := url.Parse(proxy.URL)
	cfg := r.config()
	cfg.Proxy = http.ProxyURL(at)
	s := start(t, cfg, sink.WriterConfig{})
	send(t, s, 1, "a", "k")
	s.Drain(1)
	if tunnels.Load() == 0 || len(r.events("a")) != 1 {
		t.Errorf("%d tunnels, %d events", tunnels.Load(), len(r.events("a")))
	}
	cfg.TLS = nil
	if _, err := cfg.Open(sinktest.Context(t), sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("Open without the CA: %v", err)
	}
}

// TestBrokenResponses: nothing that a server sends in place of HTTP appears in an error.
func TestBrokenResponses(t *testing.T) {
	for name, text := range map[string]string{
		"not HTTP":    "s3cr3t s3cr3t s3cr3t\r\n\r\n",
		"half":        "HTTP/1.1 2",
		"bad header":  "HTTP/1.1 200 OK\r\ns3cr3t\r\n\r\n",
		"bad length":  "HTTP/1.1 200 OK\r\nContent-Length: s3cr3t\r\n\r\n",
		"long header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("s3cr3t", maxResponse) + "\r\n\r\n",
		"nothing":     "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					return
				}
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_, _ = io.WriteString(conn, text)
					conn.Close()
				}
			})
			s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
			send(t, s, 1, "a", "k")
			s.Await("a retry", func() bool { return s.Sink.Stat().Retries > 1 })
			if st := s.Sink.Stat(); st.LastError == "" || strings.Contains(st.LastError+s.Journal.String(), "s3cr3t") || errors.Is(errors.New(st.LastError), lane.ErrConnection) {
				t.Errorf("last error %q, log:\n%s", st.LastError, s.Journal)
			}
			s.Stop(errors.New("enough"))
			_ = s.Wait()
		})
	}
}

// TestSwitchedProtocols: a receiver that switches protocols and keeps the connection open holds up nothing.
func TestSwitchedProtocols(t *testing.T) {
	var healed atomic.Bool
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || healed.Load() {
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		<-ended
		conn.Close()
	})
	s := start(t, Config{URL: server.URL}, sink.WriterConfig{})
	send(t, s, 1, "a", "k")
	s.Await("a stall", func() bool { return !s.Sink.Stat().StalledSince.IsZero() })
	if st := s.Sink.Stat(); !strings.Contains(st.StallReason, "/a: HTTP 101 Switching Protocols: ") {
		t.Errorf("stall %q", st.StallReason)
	}
	healed.Store(true)
	s.Drain(1)
}

// TestInspect: check reports what the relay lacks.
func TestInspect(t *testing.T) {
	r := newReceiver(t, true)
	r.create("known")
	cfg := r.config()
	cfg.CheckMethod = http.MethodHead
	use := sink.Use{Destinations: []sink.Destination{{Name: "known"}, {Name: "unknown", Keyless: 2}, {Name: "../x"}}, DeadLetters: "known"}
	find := func(cfg Config) map[string]sink.State {
		found := make(map[string]sink.State)
		for _, f := range sinktest.Inspect(sinktest.Context(t), t, cfg, use) {
			if f.Found == "" || f.State != sink.Met && f.Fix == "" && f.Condition != "order" {
				t.Errorf("%+v", f)
			}
			found[f.Condition+" "+f.Object] = f.State
		}
		return found
	}
	got := find(cfg)
	for condition, want := range map[string]sink.State{
		"signature ": sink.Doubt, "receiver " + r.URL: sink.Met, "encryption " + r.URL: sink.Met, "destination known": sink.Met,
		"destination unknown": sink.Failed, "order unknown": sink.Doubt, "destination ../x": sink.Failed,
	} {
		if state, ok := got[condition]; !ok || state != want {
			t.Errorf("%s: %v, %v, want %v", condition, state, ok, want)
		}
	}
	unsigned := cfg
	unsigned.Origins = []string{"https://*"}
	if got := sinktest.AtStart(sinktest.Context(t), t, unsigned, use); !slices.Equal(got, []string{"destination"}) {
		t.Errorf("at the start, not met are %q", got)
	}
	cfg.TLS, cfg.Secrets = nil, func() ([]string, error) { return []string{base64.StdEncoding.EncodeToString(make([]byte, 24))}, nil }
	cfg.Authorization = func(context.Context) (string, error) { return "", errors.New("no file") }
	cfg.Origins = []string{"https://*"}
	got = find(cfg)
	for condition, want := range map[string]sink.State{
		"signature ": sink.Met, "authorization ": sink.Failed, "receiver " + r.URL: sink.Failed, "addresses https://*": sink.Doubt,
	} {
		if state, ok := got[condition]; !ok || state != want {
			t.Errorf("%s: %v, %v, want %v", condition, state, ok, want)
		}
	}
	if r.served > 0 {
		t.Errorf("%d events were sent", r.served)
	}
}

// A receiver that denies an empty request may deny events, too. What no request has tested is named.
func TestInspectOfAReceiverThatDenies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	for method, want := range map[string]struct {
		state sink.State
		says  string
	}{
		"":                 {sink.Met, "not tested"},
		http.MethodHead:    {sink.Failed, "HTTP 401"},
		http.MethodOptions: {sink.Failed, "HTTP 401"},
	} {
		found := make(map[string]sink.Finding)
		cfg := Config{URL: server.URL, Timeout: time.Minute, CheckMethod: method}
		for _, f := range sinktest.Inspect(sinktest.Context(t), t, cfg, sink.Use{Destinations: []sink.Destination{{Name: "events"}}}) {
			found[f.Condition] = f
		}
		if f := found["receiver"]; f.State != sink.Doubt || !strings.Contains(f.Found, "HTTP 401") {
			t.Errorf("%q: %+v", method, f)
		}
		if f := found["destination"]; f.State != want.state || !strings.Contains(f.Found, want.says) {
			t.Errorf("%q: %+v", method, f)
		}
	}
}

// A request that waits for a connection is not written if the fence has closed meanwhile, also during the TLS handshake.
func TestFenceClosesWhileConnecting(t *testing.T) {
	closed := errors.New("another writer is active")
	for _, encrypted := range []bool{false, true} {
		var fence atomic.Bool
		r := newReceiver(t, encrypted)
		r.create("event")
		r.Config.SetKeepAlivesEnabled(false) // so that the event does not use the connection of Open
		cfg := r.config()
		dials := 0
		closeLater := func() {
			if dials++; dials == 2 {
				fence.Store(true)
			}
		}
		if encrypted {
			tlsConfig := cfg.TLS
			cfg.TLS = func() (*tls.Config, error) {
				c, err := tlsConfig()
				c = c.Clone()
				c.VerifyConnection = func(tls.ConnectionState) error {
					closeLater()
					return nil
				}
				return c, err
			}
		} else {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				closeLater()
				return dial(ctx, network, addr)
			}
		}
		s := start(t, cfg, sink.WriterConfig{Fence: func() error {
			if fence.Load() {
				return closed
			}
			return nil
		}})
		send(t, s, 1, "event", "a")
		s.Await("a closed fence", fence.Load)
		s.Writer.CloseSend()
		err := s.Wait()
		if undelivered, ok := errors.AsType[*sink.UndeliveredError](err); !ok || undelivered.Sent > 0 || !errors.Is(err, closed) {
			t.Errorf("TLS %t: Run: %v", encrypted, err)
		}
		if n := len(r.events("event")); n > 0 {
			t.Errorf("TLS %t: %d events are stored", encrypted, n)
		}
		if st := s.Sink.Stat(); st.Retries > 0 {
			t.Errorf("TLS %t: %d retries, %s", encrypted, st.Retries, st.LastError)
		}
	}
}
