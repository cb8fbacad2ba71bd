package admin

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// ask sends a request and returns the response with its body.
func ask(t *testing.T, method, url, host string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(data)
}

var endpoints = []string{"", "metrics", "livez", "readyz", "status", "history", "config"}

func TestEveryAnswerIsGuarded(t *testing.T) {
	_, url := serve(t, nil, healthy)
	for _, path := range endpoints {
		status, header, body := ask(t, http.MethodGet, url+path, "")
		if status != http.StatusOK || body == "" {
			t.Errorf("GET /%s: %d\n%s", path, status, body)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Security-Policy": "frame-ancestors 'none'"} {
			if got := header.Get(name); !strings.Contains(got, want) {
				t.Errorf("GET /%s: %s is %q", path, name, got)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace} {
			if status, _, _ := ask(t, method, url+path, ""); status != http.StatusMethodNotAllowed {
				t.Errorf("%s /%s: %d", method, path, status)
			}
		}
		for host, want := range map[string]int{
			"localhost:1": 200, "LocalHost": 200, "[::1]:1": 200, "127.0.0.1": 200, "192.0.2.1:9187": 200, "Relay.example.com:80": 200, "relay.example.com.": 200,
			"evil.example:9187": 403, "localhost.evil.example": 403, "relay.example.com.evil.example": 403, "127.0.0.1.evil.example": 403, "x.relay.example.com": 403,
		} {
			status, _, body := ask(t, http.MethodGet, url+path, host)
			if status != want || want == http.StatusForbidden && !strings.Contains(body, "admin.hosts") {
				t.Errorf("GET /%s of %s: %d %.80s", path, host, status, body)
			}
		}
	}
	if status, _, _ := ask(t, http.MethodGet, url+"else", ""); status != http.StatusNotFound {
		t.Errorf("GET /else: %d", status)
	}
}

// The server rejects a request with a header that is too large.
func TestSlowAndLargeRequests(t *testing.T) {
	_, url := serve(t, nil, healthy)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
		t.Errorf("a large header: %.60s", answer)
	}
}

func TestProbes(t *testing.T) {
	set := func(st *relay.Stat, state relay.State, role relay.Role) { st.State, st.Role = state, role }
	for name, test := range map[string]struct {
		alter       func(*relay.Stat)
		after       time.Duration // since the last look
		ready, live string
	}{
		"idle":     {func(st *relay.Stat) { st.Sink = sink.Stat{} }, 0, "", ""},
		"busy":     {func(*relay.Stat) {}, 0, "", ""},
		"starting": {func(st *relay.Stat) { set(st, relay.Starting, relay.NoRole) }, 0, "starting", ""},
		"standby": {func(st *relay.Stat) {
			set(st, relay.Waiting, relay.Standby)
			st.LastError = "slot in use"
		}, 0, "", ""},
		"own sender kept": {func(st *relay.Stat) {
			set(st, relay.Waiting, relay.NoRole)
			st.LastError, st.Failures = "slot in use", []fault.Failure{{ExitCode: exit.SlotInUse}}
		}, 0, "waiting: slot in use", ""},
		"standby, Kafka gone": {func(st *relay.Stat) {
			set(st, relay.Waiting, relay.Standby)
			st.LastError, st.Sink.StalledSince, st.Sink.StallReason = "slot in use", time.Now().Add(-20*time.Second), "refused"
		}, 0, "Kafka has not acknowledged for 20s: refused", ""},
		"a leader moves": {func(st *relay.Stat) { st.Sink.StalledSince = time.Now().Add(-5 * time.Second) }, 0, "", ""},
		"brokers gone": {
			func(st *relay.Stat) {
				st.Sink.StalledSince, st.Sink.StallReason = time.Now().Add(-20*time.Second), "refused"
			}, 0, "Kafka has not acknowledged for 20s: refused", "",
		},
		"position file": {
			func(st *relay.Stat) {
				st.Sink.StalledSince, st.Sink.StallReason, st.Unsaved = time.Now().Add(-20*time.Second), "open /p/position.new: no space left", true
			}, 0, "the position file could not be written for 20s: open /p/position.new: no space left", "",
		},
		"both sides gone": {
			func(st *relay.Stat) {
				set(st, relay.Waiting, relay.NoRole)
				st.LastError, st.Failures = "no source", []fault.Failure{{ExitCode: exit.Source}}
				st.Sink.StalledSince, st.Sink.StallReason = time.Now().Add(-20*time.Second), "refused"
			}, 0, "waiting: no source; Kafka has not acknowledged for 20s: refused", "",
		},
		"held back for a standby":          {func(st *relay.Stat) { st.Slot.Standbys = []string{"sb1"} }, 0, "no standby streams from sb1", ""},
		"held back, but for another relay": {func(st *relay.Stat) { set(st, relay.Waiting, relay.Standby); st.Slot.Standbys = []string{"sb1"} }, 0, "", ""},
		"over": {func(st *relay.Stat) {
			set(st, relay.Stopped, relay.NoRole)
			st.Since = time.Now()
		}, 0, "stopped", ""},
		"never ends": {func(st *relay.Stat) {
			set(st, relay.Stopped, relay.NoRole)
			st.Since = time.Now().Add(-2 * time.Minute)
		}, 0, "has not exited", "has not exited"},
		"stuck": {func(*relay.Stat) {}, 2 * time.Minute, "has been stuck for 2m0s", "has been stuck for 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Broker: "Kafka"}, discard())
				if _, got := s.readiness(time.Now()); got+s.stuck(time.Now()) != "starting" {
					t.Errorf("before the first look: %q", got)
				}
				st := healthy()
				test.alter(&st)
				s.takeSample(func() relay.Stat { return st })
				bubble.Sleep(test.after)
				_, unready := s.readiness(time.Now())
				for _, probe := range []struct{ what, got, want string }{
					{"readyz", unready, test.ready}, {"livez", s.stuck(time.Now()), test.live},
				} {
					if (probe.got == "") != (probe.want == "") || !strings.Contains(probe.got, probe.want) {
						t.Errorf("%s: %q, want %q", probe.what, probe.got, probe.want)
					}
				}
			})
		})
	}
}

// The active relay and its standby are both ready, so that a rolling update finishes. Both name their role.
func TestReadyzNamesTheRole(t *testing.T) {
	for _, role := range []relay.Role{relay.Active, relay.Standby} {
		st := healthy()
		if role == relay.Standby {
			st.State, st.Role, st.LastError = relay.Waiting, role, "slot in use"
		}
		_, url := serve(t, nil, func() relay.Stat { return st })
		if status, _, body := ask(t, http.MethodGet, url+"readyz", ""); status != http.StatusOK || body != "ready: "+string(role)+"\n" {
			t.Errorf("/readyz of the %s relay: %d %q", role, status, body)
		}
		got, _, err := client(t, url).Status(t.Context())
		if err != nil || got.Role != string(role) || !got.Ready || got.StandsBy() != (role == relay.Standby) {
			t.Errorf("/status of the %s relay: role %q, ready %t, %v", role, got.Role, got.Ready, err)
		}
	}
}

// /status shows the state at the time of the request, not that of the last sample: a key that was just released is not parked.
func TestStatusIsFresh(t *testing.T) {
	var parked atomic.Bool
	parked.Store(true)
	_, url := serve(t, nil, func() relay.Stat {
		st := healthy()
		if parked.Load() {
			parkTwo(&st)
		}
		return st
	})
	for range 20 {
		was := parked.Load()
		got, _, err := client(t, url).Status(t.Context())
		if err != nil || (got.Parked.Number > 0) != was {
			t.Fatalf("%d keys are parked, want some: %t, %v", got.Parked.Number, was, err)
		}
		parked.Store(!was)
	}
}

func TestReadyzSaysWhyNot(t *testing.T) {
	st := healthy()
	st.State, st.Role, st.LastError = relay.Waiting, relay.NoRole, "the server is starting"
	_, url := serve(t, nil, func() relay.Stat { return st })
	if status, _, body := ask(t, http.MethodGet, url+"readyz", ""); status != http.StatusServiceUnavailable || body != "waiting: the server is starting\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, _, body := ask(t, http.MethodGet, url+"livez", ""); status != http.StatusOK || body != "alive\n" {
		t.Errorf("%d %q", status, body)
	}
}

func TestStatus(t *testing.T) {
	st := healthy()
	st.Slot.WALEnd = st.Confirmed + 5000
	st.Behind = time.Now().Add(-3 * time.Second)
	st.Failures = []fault.Failure{{Text: "older", Times: 1}, {Text: "newer", Times: 4, ExitCode: 11, Advice: "look at <slot> of <publication>"}}
	_, url := serve(t, nil, func() relay.Stat { return st })
	_, _, body := ask(t, http.MethodGet, url+"status", "")
	var got struct {
		State    string
		Ready    bool
		Source   struct{ Confirmed string }
		Lag      struct{ Bytes, Seconds float64 }
		Slot     map[string]any
		Failures []struct {
			Text, Advice string
			Times        int
			ExitCode     int `json:"exit_code"`
		}
		Topics []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	if got.State != "streaming" || !got.Ready || got.Source.Confirmed != st.Confirmed.String() || got.Lag.Bytes != 5000 || got.Lag.Seconds < 3 || got.Lag.Seconds > 10 {
		t.Errorf("%+v", got)
	}
	if len(got.Failures) != 2 || got.Failures[0].Text != "newer" || got.Failures[0].Advice != "look at orders of outbox_pub" || got.Failures[0].ExitCode != 11 {
		t.Errorf("failures: %+v", got.Failures)
	}
	if len(got.Topics) != 2 || got.Topics[0].Name != "outbox.event.order" {
		t.Errorf("topics: %+v", got.Topics)
	}
	if got.Slot["time_to_full"] != nil || got.Slot["safe_bytes"] != 10_700_000_000.0 || got.Slot["endangered"] != false {
		t.Errorf("slot: %v", got.Slot)
	}
}

func TestHistoryKeepsAQuarterOfAnHour(t *testing.T) {
	var h history
	at := time.Unix(1_700_000_000, 0)
	for i := range kept + 100 {
		h.add(&sample{at: at.Add(time.Duration(i) * interval), records: int64(7 * i), delivery: distribution{0: 1}})
	}
	points := h.last(2 * kept)
	if len(points) != kept || points[0][columnAt] != number(at.Unix()+100) || points[0][1] != 7 {
		t.Errorf("%d points, the first %v", len(points), points[0])
	}
	from, _, delivery := h.window()
	if h.recent[(h.n-1)%len(h.recent)].at.Sub(from.at) != window*interval || delivery[0] != window {
		t.Errorf("window from %s with %v", from.at, delivery)
	}
	if got, want := len(point{}), len(columns()); got != want {
		t.Errorf("%d numbers, %d names", got, want)
	}
	data, err := json.Marshal(point{1, none()})
	if diff := cmp.Diff("[1,null,0,0,0,0,0,0]", string(data)); err != nil || diff != "" {
		t.Errorf("JSON: %v %s", err, diff)
	}
}

func TestQuantiles(t *testing.T) {
	l := newLatency(ackSeconds())
	if q := l.recent().quantile(0.5); q != nil {
		t.Errorf("of nothing: %v", *q)
	}
	for i := range 1000 {
		l.observe(time.Duration(i+1)*time.Millisecond, "")
	}
	fresh := l.recent()
	for q, want := range map[float64]float64{0.01: 0.01, 0.5: 0.5, 0.99: 0.99, 1: 1} {
		if got := *fresh.quantile(q); got < want/1.1 || got > want*1.1 {
			t.Errorf("quantile %v is %v, want %v within a tenth", q, got, want)
		}
	}
	l.observe(0, "")
	if got := *l.recent().quantile(0.5); got != 0 {
		t.Errorf("only the newest count: %v", got)
	}
}
