package admin

import (
	"encoding/json"
	"flag"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

var shots = flag.String("shots", "", "directory that pictures of the page are written to")

// busy gives the Server a history as if the relay had been busy for a quarter of an hour.
func busy(s *Server, now relay.Stat) {
	at := time.Now()
	for i := range kept {
		ago := time.Duration(kept-i) * interval
		wave := 1 + 0.3*math.Sin(float64(i)/40) + 0.05*math.Sin(float64(i)/3)
		st := now
		st.Rows = uint64(40_000_000 + 1200*i)
		st.Sink.Topics = map[string]sink.TopicStat{
			"outbox.event.order": {Records: int64(31_000_000 + 1000*i), Bytes: int64(6_200_000_000 + 200_000*i)}, "outbox.event.customer": {Records: int64(9_000_000 + 200*i), Bytes: 1_100_000_000},
		}
		sm := &sample{stat: st, at: at.Add(-ago), records: 40_000_000 + int64(1200*i) + int64(6000*math.Sin(float64(i)/40)), bytes: int64(7_300_000_000 + 240_000*i)}
		spread := distribution{}
		for n := range 40 { // from 0.6 ms on
			spread[-85+n] = int64(1000 * math.Exp(-math.Pow(float64(n)-6*wave, 2)/30))
		}
		sm.delivery, sm.answered = spread, distribution{-90: 900, -82: 100}
		s.history.add(sm)
	}
}

func healthy() relay.Stat {
	return relay.Stat{
		State: relay.Streaming, Role: relay.Active, Since: time.Now().Add(-26 * time.Hour), Sessions: 2, Transactions: 4_100_000, Rows: 41_080_000,
		Received: 0x2A_7F3C5B10, Confirmed: 0x2A_7F3C5A08,
		Slot: relay.SlotStat{ReadAt: time.Now(), Exists: true, WALStatus: "reserved", WALEnd: 0x2A_7F3C5B10, RetainedBytes: 34_000_000, SafeBytes: new(int64(10_700_000_000))},
		Sink: sink.Stat{
			Topics:          map[string]sink.TopicStat{"outbox.event.order": {Records: 31_900_000, Bytes: 6_380_000_000}, "outbox.event.customer": {Records: 9_180_000, Bytes: 1_100_000_000}},
			InFlightRecords: 12, InFlightBytes: 4120,
		},
	}
}

// newServer returns a Server. fill may give it a history.
func newServer(fill func(*Server)) *Server {
	s := New(Config{
		Name: "orders", Version: "v1.0.0", Docs: "https://example.com/docs", Source: "db.example.com:5432/shop", Publication: "outbox_pub", Slot: "orders",
		Broker: "Kafka", Brokers: []string{"kafka-1:9092", "kafka-2:9092"}, Hosts: []string{"relay.example.com"}, Configuration: "source:\n  dsn: postgres://cdc:***@db.example.com/shop\n",
	}, discard())
	cfg := relay.Config{}
	s.Observe(&cfg)
	if fill != nil {
		fill(s)
	}
	return s
}

// serve runs a Server with the given stat.
func serve(t *testing.T, fill func(*Server), stat func() relay.Stat) (s *Server, url string) {
	t.Helper()
	s = newServer(fill)
	return s, run(t, s, stat)
}

// A situation is a state of the relay, with the texts that the page must show.
type situation struct {
	name, verdict, why, todo string
	alter                    func(*relay.Stat) // changes the Stat of a busy relay; nil: the relay is idle
}

// build returns the relay's Stat, and the function that gives a Server its history.
func (s *situation) build() (st relay.Stat, fill func(*Server)) {
	st = healthy()
	if s.alter == nil {
		st.Sink.InFlightRecords, st.Sink.InFlightBytes = 0, 0
		return st, nil
	}
	s.alter(&st)
	return st, func(s *Server) { busy(s, st) }
}

var situations = []situation{
	{"load", "Healthy", "Committed rows reach Kafka in", "", func(*relay.Stat) {}},
	{"idle", "Healthy", "There are no new rows", "", nil},
	{"topic", "Destination outbox.event.order takes no records", "UNKNOWN_TOPIC_OR_PARTITION", "kafka-topics.sh", func(st *relay.Stat) {
		st.Sink.StalledSince, st.Sink.StallReason = time.Now().Add(-3*time.Second), "topic outbox.event.order: UNKNOWN_TOPIC_OR_PARTITION"
		st.Sink.StallMissing, st.Sink.StallAdvice = "outbox.event.order", "Create the topic: kafka-topics.sh --create"
	}},
	{"broker", "Kafka does not acknowledge records", "connection refused", "Nothing is lost", func(st *relay.Stat) {
		st.Behind = time.Now().Add(-95 * time.Second)
		st.Slot.WALEnd += 180_000_000
		st.Sink.InFlightRecords, st.Sink.InFlightBytes = 48_900, 6_100_000
		st.Sink.StalledSince = time.Now().Add(-94 * time.Second)
		st.Sink.StallReason = "dial tcp 10.0.0.7:9092: connect: connection refused"
		st.Sink.LastError, st.Sink.LastErrorAt = "topic outbox.event.order, partition 3: "+st.Sink.StallReason, time.Now()
	}},
	{"file", "The position file cannot be written", "no space left", "Free space", func(st *relay.Stat) {
		st.Sink.StalledSince, st.Sink.StallReason, st.Unsaved = time.Now().Add(-5*time.Second), "write positions.new: no space left on device", true
	}},
	{"behind", "Catching up", "behind and has 172 MB of WAL left", "set sink.kafka.window.bytes", func(st *relay.Stat) {
		st.Behind = time.Now().Add(-95 * time.Second)
		st.Slot.WALEnd += 180_000_000
		st.Sink.WindowAdvice = "To deliver faster: set sink.kafka.window.bytes to 75497472."
	}},
	{"withheld", "Postgres waits for a standby", "no standby streams from sb1", "outbox-cdc check", func(st *relay.Stat) {
		st.Behind, st.Slot.Standbys = time.Now().Add(-95*time.Second), []string{"sb1"}
		st.Sink.InFlightRecords, st.Sink.InFlightBytes = 0, 0
	}},
	{"standby", "Standby", "takes over", "", func(st *relay.Stat) {
		st.State, st.Role, st.LastError = relay.Waiting, relay.Standby, "slot orders is in use by process 4711"
		st.Failures = []fault.Failure{{Last: time.Now(), Times: 1, Text: st.LastError, ExitCode: exit.SlotInUse}}
	}},
	{"refill", "Refilling after the loss of the slot", "has sent 132,701 of about 400,000 rows from the table in ", "docs/recover.md", func(st *relay.Stat) {
		st.Refill = &relay.RefillStat{Since: time.Now().Add(-8 * time.Second), Rows: 132_701, Total: 400_000}
	}},
	{"source", "Waiting for Postgres", "connection refused", "Check source.dsn of orders.\nSee docs/access.md#postgres.", func(st *relay.Stat) {
		st.State, st.Role, st.Since = relay.Waiting, relay.NoRole, time.Now().Add(-42*time.Second)
		st.LastError = "connect to db.example.com:5432: connection refused"
		st.Failures = []fault.Failure{{
			First: time.Now().Add(-42 * time.Second), Last: time.Now(), Times: 31, Text: st.LastError, ExitCode: exit.Source, Advice: "Check source.dsn of <slot>.", Section: "docs/access.md#postgres",
		}}
	}},
	{"slot", "The slot is about to be lost", "Postgres may remove WAL", "max_slot_wal_keep_size", func(st *relay.Stat) {
		st.Slot.WALStatus, st.Slot.RetainedBytes, st.Slot.SafeBytes = "unreserved", 10_600_000_000, new(int64(-12_000_000))
		st.Slot.WALEnd += 10_500_000_000
		st.Behind = time.Now().Add(-51 * time.Minute)
	}},
	{"parked", "Keys are parked", "waits behind transaction 2A/7F000000, row 3: record for topic", "outbox-cdc dead-letter release --id 5f0c7a7e", parkTwo},
	{"both", "Kafka does not acknowledge records, and the slot is about to be lost", "connection refused", "max_slot_wal_keep_size", func(st *relay.Stat) {
		st.Slot.SafeBytes = new(int64(0))
		st.Sink.StalledSince, st.Sink.StallReason = time.Now().Add(-time.Minute), "connection refused"
	}},
}

func parkTwo(st *relay.Stat) {
	park := func(id, key string, age time.Duration, records int, reason string) {
		st.Parked = append(st.Parked, parking.Parking{
			ID: id, Key: parking.Key{Topic: "outbox.event.order", Key: key}, Since: time.Now().Add(-age), Records: records,
			Bad: parking.Row{LSN: 0x2A_7F000000, Index: 3}, Reason: reason,
		})
	}
	park("5f0c7a7e-0000-4000-8000-000000000001", "secret-key", 3*time.Hour, 1234, "record for topic outbox.event.order, 2000204 bytes (limit 1048588): MESSAGE_TOO_LARGE")
	park("9b1d0c44-0000-4000-8000-000000000001", "secret-key", time.Minute, 1, "row 17 of public.outbox: column headers: is not a JSON object")
	st.ParkedRecords = 1235
}

// The page and /status name parked keys by their ids: a key is data.
func TestParkedKeysAreNotShown(t *testing.T) {
	st := healthy()
	parkTwo(&st)
	s := newServer(nil)
	s.takeSample(func() relay.Stat { return st })
	body, err := json.Marshal(s.status(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(body); strings.Contains(text, "secret-key") || !strings.Contains(text, `"id":"5f0c7a7e"`) || !strings.Contains(text, `"records":1234`) {
		t.Errorf("%s", body)
	}
}

// The page shows the verdict of /status.
func TestVerdict(t *testing.T) {
	for _, test := range situations {
		st, fill := test.build()
		s := newServer(fill)
		s.takeSample(func() relay.Stat { return st })
		got := s.status(time.Now()).Verdict
		if got.Title != test.verdict || !strings.Contains(got.Why, test.why) || !strings.Contains(got.Advice, test.todo) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// At its top, the page shows the state of the relay, the reason and the advice, with every number in its place. The
// test uses a real browser and the page's own strict content security policy.
func TestPage(t *testing.T) {
	b := startBrowser(t)
	for _, test := range situations {
		st, fill := test.build()
		_, url := serve(t, fill, func() relay.Stat { return st })
		b.size(1200, 960, "light")
		b.open(url)
		if got := b.text("#verdict"); got != test.verdict {
			t.Errorf("%s: verdict %q", test.name, got)
		}
		if got := b.text("#why"); !strings.Contains(got, test.why) {
			t.Errorf("%s: why %q", test.name, got)
		}
		if got := b.text("#todo"); !strings.Contains(got, test.todo) {
			t.Errorf("%s: advice %q", test.name, got)
		}
		for selector, want := range map[string]string{
			"#name": "orders", "#about": "db.example.com:5432/shop → kafka-1:9092, kafka-2:9092", "#confirmed": "2A/7F3C5A08",
			"#topics tr:first-child td": "outbox.event.order", "#slot dd": "orders", "#flow li:first-child dt": "Unconfirmed WAL",
		} {
			if got := b.text(selector); got != want {
				t.Errorf("%s: %s is %q, want %q", test.name, selector, got, want)
			}
		}
		if len(st.Failures) > 0 && st.Failures[0].Section != "" {
			if got, want := b.text("#errors a"), st.Failures[0].Section; got != want {
				t.Errorf("%s: the link to the documentation is %q, want %q", test.name, got, want)
			}
		}
		if rows := b.eval(`document.querySelectorAll('#parked-keys li').length`); rows != float64(len(st.Parked)) {
			t.Errorf("%s: %v parked keys are listed, want %d", test.name, rows, len(st.Parked))
		}
		picture(b, test.name+"-light")
		b.size(1200, 960, "dark")
		picture(b, test.name+"-dark")
		b.size(360, 780, "light")
		if width := b.eval(`document.documentElement.scrollWidth`); width != 360.0 {
			t.Errorf("%s: %v wide on a screen of 360", test.name, width)
		}
		if right := b.eval(`document.querySelector('#topics').parentNode.querySelector('th:last-child').getBoundingClientRect().right`).(float64); right > 360 {
			t.Errorf("%s: the last column of the destinations ends at %v on a screen of 360", test.name, right)
		}
		picture(b, test.name+"-narrow")
	}
	for _, p := range b.problems {
		t.Errorf("console: %s", p)
	}
}

func picture(b *browser, name string) {
	b.t.Helper()
	if *shots != "" {
		b.shoot(filepath.Join(*shots, name+".png"))
	}
}

// The charts contain the history from before the page was loaded. Numbers are updated. Every element is reachable
// by keyboard. If the relay does not respond, the page says so.
func TestPageLives(t *testing.T) {
	b := startBrowser(t)
	var rows uint64
	st := healthy()
	s, url := serve(t, func(s *Server) { busy(s, st) }, func() relay.Stat {
		rows += 500
		now := st
		now.Rows += rows
		return now
	})
	b.size(1200, 900, "light")
	b.open(url)
	if n := b.eval(`document.querySelector('#plot-lag .first').getAttribute('d').split(/[ML]/).length`).(float64); n < kept-30 {
		t.Errorf("%v points in a chart after loading, want %d", n, kept)
	}
	if got := b.text("#plot-rate .left"); got != "15 min ago" {
		t.Errorf("the chart begins %q", got)
	}
	rate := b.text("#rows-rate")
	b.until(`document.querySelector('#rows-rate').innerText !== '` + rate + `'`)

	var reached []string
	for range 12 {
		b.press("Tab")
		reached = append(reached, b.eval(`document.activeElement.id || document.activeElement.textContent.slice(0, 12)`).(string))
		switch reached[len(reached)-1] {
		case "plot-latency":
			before := b.text("#latency-now")
			b.press("ArrowLeft")
			if got := b.text("#latency-now"); !strings.Contains(got, "5 s ago") || got == before {
				t.Errorf("a key in the chart: %q", got)
			}
		case "Effective co":
			b.press("Enter")
		}
		if reached[len(reached)-1] == "livez" {
			break
		}
	}
	for _, want := range []string{"plot-lag", "plot-latency", "plot-rate", "Effective co", "metrics"} {
		if !strings.Contains(strings.Join(reached, " "), want) {
			t.Errorf("the keyboard does not reach %s, only %q", want, reached)
		}
	}
	b.until(`document.querySelector('#config-text').innerText.includes('***@db.example.com')`)

	for _, p := range b.problems {
		t.Errorf("console: %s", p)
	}
	s.listener.Close()
	b.eval(`window.fetch = () => Promise.reject(new Error('cut'))`)
	b.until(`document.querySelector('#verdict').innerText === 'The relay does not respond'`)
}

// Just after a start, the rate of the WAL has only what the relay has read, not its position.
func TestWALRateAfterAStart(t *testing.T) {
	s, st := newServer(nil), healthy()
	s.takeSample(func() relay.Stat { return relay.Stat{State: relay.Starting} })
	s.takeSample(func() relay.Stat { return st })
	if rate := s.status(time.Now()).Rates.Log; rate != 0 {
		t.Errorf("nothing was read: %v bytes/s", rate)
	}
	st.WALBytes = 100
	s.takeSample(func() relay.Stat { return st })
	if rate := s.status(time.Now()).Rates.Log; rate == 0 {
		t.Error("100 bytes were read: no rate")
	}
}
