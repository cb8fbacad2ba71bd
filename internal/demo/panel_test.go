package demo

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func busy() view {
	v := view{
		elapsed: 7200 * time.Millisecond, limit: 10 * time.Second,
		counts: counts{transactions: 1234, rows: 1543, rolledBack: 128, records: 1540, missing: 3},
		rate:   245.4, relay: relayStreaming, confirmed: 0x1949A18, server: 0x194B2C0,
		all: &histogram.Histogram{}, recent: &histogram.Histogram{},
		arrivals: []arrival{
			{"outbox.event.order", "order-311", "OrderPlaced", 810 * time.Microsecond},
			{"outbox.event.customer", "customer-12", "CustomerCharged", 1200 * time.Microsecond},
		},
	}
	for i := range 1000 {
		d := time.Duration(i*i) * 10 * time.Nanosecond
		v.recent.Record(d)
		v.all.Record(d)
	}
	return v
}

const goldenPanel = `
  order service             relay                       consumer
  transactions      1,234   state           streaming   records          1,540
  rows              1,543   confirmed       0/1949A18   in flight            3
  rolled back         128   WAL end         0/194B2C0   out of order         0
  rows/s              245   lag                  6 kB   duplicates           0

  COMMIT to consumer  p50 2.5 ms   p99 9.9 ms   max 10.0 ms  in the last 5 s
  up to     0.5 ms  1 ms    2 ms    5 ms    10 ms   20 ms   50 ms   more
            █▋      ▋       ▉       █▉      ██

  destination                      key            type                  after
  outbox.event.customer            customer-12    CustomerCharged      1.2 ms
  outbox.event.order               order-311      OrderPlaced         0.81 ms





  █████████████████░░░░░░░ 7.2 s of 10.0 s · Ctrl-C to stop now`

func TestPanel(t *testing.T) {
	got := panel(busy(), terminal.Style{})
	for i := range got {
		got[i] = strings.TrimRight(got[i], " ")
	}
	if diff := cmp.Diff(strings.Split(goldenPanel, "\n"), got); diff != "" {
		t.Errorf("panel (-want +got):\n%s", diff)
	}
}

// The panel always has the same height, and its lines fit, so that the terminal does not scroll.
func TestPanelHasOneSize(t *testing.T) {
	crowded := busy()
	crowded.limit = 0
	crowded.counts = counts{
		transactions: 123_456_789, rows: 987_654_321, rolledBack: 123_456_789, records: 987_654_321,
		missing: 987_654_321, disordered: 987_654_321, duplicates: 987_654_321,
	}
	crowded.confirmed, crowded.server = 0xFFFFFFFF, pglogrepl.LSN(1)<<60
	crowded.relay = "waiting"
	for range 20 {
		crowded.arrivals = append(crowded.arrivals, arrival{
			strings.Repeat("topic-é", 10), strings.Repeat("key", 10), strings.Repeat("Type", 10), time.Hour,
		})
	}
	struck := crowded
	struck.chaos, struck.blows = true, blows{Killed: 1000, Frozen: 1000, Cut: 1000}
	for range strikesShown {
		struck.strikes = append(struck.strikes, strike{Fault: kill, At: 24 * time.Hour, What: strings.Repeat("relay ", 10), Then: strings.Repeat("relay ", 10), Recovery: 59.9})
	}
	empty := view{all: &histogram.Histogram{}, recent: &histogram.Histogram{}}
	want := len(panel(busy(), terminal.Style{}))
	if want > panelHeight-1 {
		t.Errorf("%d lines do not fit", want)
	}
	for _, v := range []view{crowded, struck, empty, {chaos: true, all: empty.all, recent: empty.recent}} {
		lines := panel(v, terminal.Style{})
		if len(lines) != want {
			t.Errorf("%d lines, want %d", len(lines), want)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n >= panelWidth {
				t.Errorf("%d columns: %q", n, l)
			}
		}
	}
}

func TestLine(t *testing.T) {
	v := busy()
	got := line(v)
	want := "   7 s  rows 1,543  rolled back 128  records 1,540  in flight 3  confirmed 0/1949A18  p50 2.5 ms  p99 9.9 ms"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	v.relay, v.duplicates = "waiting", 2
	if got, want := line(v), want+"  out of order 0  duplicates 2  unexpected 0  relay waiting"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSummarySaysWhatWentWrong(t *testing.T) {
	for want, r := range map[string]result{
		"✔ Every committed row has arrived": {counts: counts{records: 1}},
		"✘ The records":                     {counts: counts{records: 1}, lost: 1},
		"✘ The records differ":              {counts: counts{records: 1, disordered: 1}},
		"✘ The records differ from":         {counts: counts{records: 1, invented: 1}},
		"✘ The demo stopped with an error":  {counts: counts{records: 1}, lost: 1, ended: true},
		"No rows were written.":             {},
	} {
		r.latency = &histogram.Histogram{}
		if got := strings.Join(summary(r, terminal.Style{}), "\n"); !strings.Contains(got, want) {
			t.Errorf("%+v: no %q in\n%s", r.counts, want, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "0.00 ms", 850 * time.Microsecond: "0.85 ms", 1250 * time.Microsecond: "1.2 ms", 12345 * time.Microsecond: "12 ms", 999 * time.Millisecond: "999 ms",
		1500 * time.Millisecond: "1.5 s", 10 * time.Minute: "10m0s",
	} {
		if got := formatDuration(in); got != want {
			t.Errorf("formatDuration(%d) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0 B", 999: "999 B", 1499: "1 kB", 2_500_000: "3 MB", 5_000_000_000: "5 GB"} {
		if got := size(in); got != want {
			t.Errorf("size(%d) = %s, want %s", in, got, want)
		}
	}
}

func TestDownload(t *testing.T) {
	for want, p := range map[string]pgserver.Progress{
		"downloading (only once)": {},
		"downloading ████░░░░░░░░ 5 MB of 15 MB, 1 MB/s, 8s left": {Bytes: 5_000_000, Total: 15_000_000},
		"downloaded, unpacking": {Bytes: 15_000_000, Total: 15_000_000, Unpacking: true},
	} {
		got := download(p, 4*time.Second)
		if got != want {
			t.Errorf("download(%+v) = %s, want %s", p, got, want)
		}
		if n := utf8.RuneCountInString(got) + stepWidth + 5; n >= panelWidth {
			t.Errorf("%q takes %d columns", got, n)
		}
	}
}

func TestStepsSayWhereTheyAreWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		s := &screen{w: &b}
		err := s.step("Postgres", func(report func(string)) (string, error) {
			for i := range 12 {
				report(strconv.Itoa(i))
				bubble.Sleep(time.Second)
			}
			return "here", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "    Postgres       0\n    Postgres       10\n  ✔ Postgres       here" + strings.Repeat(" ", detailWidth-4) + "   12.0 s\n"
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestScreenDrawsInPlaceOnATerminalOnly(t *testing.T) {
	var b strings.Builder
	s := &screen{w: &b, live: true}
	s.say("first")
	s.draw("a", "b")
	s.draw("c", "d")
	s.say("second")
	s.draw("e")
	s.close()
	want := "first\x1b[K\n" + "a\x1b[K\nb\x1b[K\n\x1b[?25l" + "\r\x1b[2Ac\x1b[K\nd\x1b[K\n\x1b[J" +
		"\r\x1b[2Asecond\x1b[K\n\x1b[J\x1b[?25h" + "e\x1b[K\n\x1b[?25l" + "\r\x1b[1A\x1b[J\x1b[?25h"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("terminal (-want +got):\n%s", diff)
	}

	b.Reset()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s := newScreen(file, Options{}); s.live || s.style.On {
		t.Error("a file counts as a terminal")
	}
	s = newScreen(&b, Options{})
	s.say("first")
	s.draw("a")
	s.close()
	if got := b.String(); got != "first\n" {
		t.Errorf("elsewhere: %q", got)
	}
}
