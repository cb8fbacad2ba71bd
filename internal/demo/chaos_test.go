package demo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

func TestStrikesInWords(t *testing.T) {
	for want, s := range map[string]strike{
		"   1.7 s  killed relay 1, process 4711         152 ms  relay 2 took over": {
			Fault: kill, At: 1700 * time.Millisecond, What: "killed relay 1, process 4711", Recovery: 0.152, Then: "relay 2 took over",
		},
		"  20.0 s  froze relay 2, process 4712               …  ": {Fault: freeze, At: 20 * time.Second, What: "froze relay 2, process 4712"},
		"  26.5 s  woke relay 2, process 4712                   shut out": {
			Fault: wake, At: 26500 * time.Millisecond, What: "woke relay 2, process 4712", Then: "shut out",
		},
	} {
		if got := s.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	if got, want := (blows{1, 0, 1200}).String(), "killed once · frozen 0 times · connections cut 1,200 times"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// With Options.Chaos a duplicate is an error, and one line has the whole result.
func TestSummaryOfChaos(t *testing.T) {
	r := result{
		counts: counts{rows: 10, records: 10}, latency: &histogram.Histogram{}, chaos: true, blows: blows{Killed: 7, Frozen: 2, Cut: 5},
	}
	text := strings.Join(summary(r, terminal.Style{}), "\n")
	if want := "killed 7 times · frozen 2 times · connections cut 5 times · lost 0 · out of order 0 · duplicates 0"; !strings.Contains(text, want) || r.broken() {
		t.Errorf("broken %v, summary:\n%s", r.broken(), text)
	}
	r.records, r.duplicates = 11, 1
	if text := strings.Join(summary(r, terminal.Style{}), "\n"); !r.broken() || !strings.Contains(text, "✘") {
		t.Errorf("with a duplicate: broken %v, summary:\n%s", r.broken(), text)
	}
	if r.chaos = false; r.broken() {
		t.Error("without chaos, a duplicate is an error")
	}
}

// The configuration of a relay is the demo's, whatever the user has set for a relay of their own.
func TestEnvironmentOfARelay(t *testing.T) {
	got := childEnv([]string{"HOME=/home/me", "OUTBOX_CDC_SOURCE_SLOT=theirs", "OUTBOX_CDC_ON_BAD_RECORD=park", "PGPASSFILE=/p"}, map[string]string{"SOURCE_SLOT": "ours"})
	if want := []string{"HOME=/home/me", "OUTBOX_CDC_SOURCE_SLOT=ours", "PGPASSFILE=/p"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A relay that is stopped while it starts has not failed.
func TestRelayThatIsTooYoungToStop(t *testing.T) {
	for script, want := range map[string]bool{"kill -TERM $$": true, "kill -KILL $$": false, "exit 3": false, "true": false} {
		if got := terminated(exec.CommandContext(t.Context(), "sh", "-c", script).Run()); got != want {
			t.Errorf("%s: terminated %v, want %v", script, got, want)
		}
	}
}

// A crew has an active relay and a standby only if both say so.
func TestRolesOfACrew(t *testing.T) {
	first, second := &seat{name: "relay 1"}, &seat{name: "relay 2"}
	c := &crew{seats: []*seat{first, second}}
	process := new(seatProcess)
	first.process, second.process = process, process
	say := func(s *seat, role relay.Role, confirmed string) {
		st := &admin.Status{Role: string(role)}
		st.Source.Confirmed = confirmed
		s.note(process, st)
	}
	say(first, relay.Standby, "0/10")
	if _, _, ok := c.roles(); ok {
		t.Error("one relay does not respond, and counts as active")
	}
	if state, _ := c.standing(); state != string(relay.Waiting) {
		t.Errorf("state %s without an active relay", state)
	}
	say(second, relay.Active, "0/20")
	second.note(new(seatProcess), nil) // about an earlier process
	if active, standby, ok := c.roles(); !ok || active != second || standby != first {
		t.Errorf("active %v, standby %v, %v", active, standby, ok)
	}
	if state, confirmed := c.standing(); state != relayStreaming || confirmed != 0x20 {
		t.Errorf("state %s, confirmed %s", state, confirmed)
	}
	second.note(process, nil) // frozen
	if _, confirmed := c.standing(); confirmed != 0x20 {
		t.Errorf("confirmed %s, although it was further", confirmed)
	}
}

// The page's lost rows are those that have not arrived long after their COMMIT.
func TestLostSoFar(t *testing.T) {
	l := newLedger()
	arrives, never := row{id: uuid.New(), topic: "t", key: "k", version: 1}, row{id: uuid.New(), topic: "t", key: "k", version: 2}
	before := time.Now()
	l.enter(delivery.Committed, arrives, never)
	l.enter(delivery.RolledBack, row{id: uuid.New(), topic: "t", key: "k", version: 3})
	now := time.Now()
	if _, ok := l.receive(arrives, delivery.Coordinates{Topic: "t"}, now); !ok {
		t.Fatal("the record was not expected")
	}
	if n := l.lost(now, lostAfter); n != 0 {
		t.Errorf("%d lost at once", n)
	}
	if n := l.lost(now.Add(lostAfter), lostAfter); n != 1 {
		t.Errorf("%d lost, want 1", n)
	}
	if newest := l.newestArrived(); newest.Before(before) || newest.After(now) {
		t.Errorf("newest row that arrived: %s, not between %s and %s", newest, before, now)
	}
	l.receive(arrives, delivery.Coordinates{Topic: "t", Offset: 1}, now)
	if text := l.violations().String(); !strings.Contains(text, "duplicate t/k/1") {
		t.Errorf("no duplicate in %q", text)
	}
}

func TestPageServesItsFilesAndItsState(t *testing.T) {
	d := &demo{opts: Options{For: time.Minute, Rate: 100}, ledger: newLedger(), rig: &rig{broker: &broker{}}}
	c := &crew{demo: d}
	c.striker, c.page = newStriker(d, c), newChaosPage(d, c)
	c.striker.begin(strike{Fault: kill, What: "killed relay 1"})
	if diff := cmp.Diff([]fault{kill, freeze, kill}, c.striker.faults); diff != "" {
		t.Errorf("faults without a proxy (-want +got):\n%s", diff)
	}
	c.page.note(time.Now())
	handler, err := c.page.handler()
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		return w
	}
	for path, part := range map[string]string{"/": `<script src="page.js">`, "/page.js": "poll()", "/page.css": ":root"} {
		if body := get(path).Body.String(); !strings.Contains(body, part) {
			t.Errorf("%s: no %q in %s", path, part, body)
		}
	}
	var st pageState
	if err := json.Unmarshal(get("/state").Body.Bytes(), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blows != (blows{Killed: 1}) || len(st.Strikes) != 1 || st.Strikes[0].What != "killed relay 1" || len(st.Points) != 1 || st.Limit != 60 {
		t.Errorf("state %+v", st)
	}
}
