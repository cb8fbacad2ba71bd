package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A view is the data of the panel, the lines and the summary at one time.
type view struct {
	elapsed time.Duration
	limit   time.Duration // 0: until interrupted

	counts
	rate float64 // rows per second, over the last second

	relay     string // its state
	confirmed pglogrepl.LSN
	server    pglogrepl.LSN // end of the WAL; 0: unknown

	all, recent *histogram.Histogram
	arrivals    []arrival

	chaos   bool // Options.Chaos
	blows   blows
	strikes []strike // the newest ones, the newest last
}

const arrivalsShown = 6

// panel draws v, 79 columns wide and with a fixed number of lines.
func panel(v view, s terminal.Style) []string {
	lines := []string{
		"",
		heading(s),
		pair(s, "transactions", terminal.Number(v.transactions), "state", v.relay, "records", terminal.Number(v.records)),
		pair(s, "rows", terminal.Number(v.rows), "confirmed", v.confirmed.String(), "in flight", terminal.Number(v.missing)),
		pair(s, "rolled back", terminal.Number(v.rolledBack), "WAL end", lsn(v.server), "out of order", terminal.Number(v.disordered)),
		pair(s, "rows/s", terminal.Number(int(v.rate+0.5)), "lag", lag(v), "duplicates", terminal.Number(v.duplicates)),
		"",
		"  " + s.Name("COMMIT to consumer") + "  " + latencies(v.recent, s) + s.Dim("  in the last 5 s"),
	}
	lines = append(lines, distribution(v.recent, s)...)
	lines = append(lines, "")
	if v.chaos {
		lines = append(lines, struck(v, s)...)
	} else {
		lines = append(lines, arrived(v, s)...)
	}
	return append(lines, "", "  "+remaining(v, s))
}

// struck draws the newest strikes, the newest first.
func struck(v view, s terminal.Style) []string {
	sum := fmt.Sprintf("killed %s · frozen %s · connections cut %s", terminal.Number(v.blows.Killed), terminal.Number(v.blows.Frozen), terminal.Number(v.blows.Cut))
	lines := []string{"  " + s.Bold(terminal.Left(sum, 48)) + s.Dim("new row")}
	for i := range strikesShown {
		text := ""
		if i < len(v.strikes) {
			text = "  " + terminal.Left(v.strikes[len(v.strikes)-1-i].String(), panelWidth-3)
		}
		lines = append(lines, text)
	}
	return lines
}

// arrived draws the newest records, the newest first.
func arrived(v view, s terminal.Style) []string {
	lines := []string{"  " + s.Dim(terminal.Left("destination", 33)+terminal.Left("key", 15)+terminal.Left("type", 19)+terminal.Right("after", 8))}
	for i := range arrivalsShown {
		if i >= len(v.arrivals) {
			lines = append(lines, "")
			continue
		}
		a := v.arrivals[len(v.arrivals)-1-i]
		lines = append(lines, "  "+terminal.Left(a.destination, 32)+" "+terminal.Left(a.key, 14)+" "+terminal.Left(a.kind, 18)+" "+terminal.Right(formatDuration(a.took), 8))
	}
	return lines
}

func heading(s terminal.Style) string {
	return "  " + s.Bold(terminal.Left("order service", 26)) + s.Bold(terminal.Left("relay", 28)) + s.Bold("consumer")
}

// pair prints one line of the three blocks.
func pair(s terminal.Style, name1, value1, name2, value2, name3, value3 string) string {
	return "  " + s.Dim(terminal.Left(name1, 14)) + terminal.Right(value1, 9) + "   " +
		s.Dim(terminal.Left(name2, 11)) + terminal.Right(value2, 14) + "   " +
		s.Dim(terminal.Left(name3, 13)) + terminal.Right(value3, 9)
}

func lsn(l pglogrepl.LSN) string {
	if l == 0 {
		return "-"
	}
	return l.String()
}

// lag returns the WAL after the confirmed position.
func lag(v view) string {
	if v.server == 0 {
		return "-"
	}
	return size(max(0, int64(v.server)-int64(v.confirmed)))
}

func latencies(h *histogram.Histogram, s terminal.Style) string {
	if h.Count() == 0 {
		return "-"
	}
	return fmt.Sprintf("p50 %s   p99 %s   max %s", s.Bold(formatDuration(h.Quantile(0.5))), s.Bold(formatDuration(h.Quantile(0.99))), s.Bold(formatDuration(h.Max())))
}

// distribution draws the share of latencies up to each bound, and above the last one.
func distribution(h *histogram.Histogram, s terminal.Style) []string {
	const width = 8
	bounds := []struct {
		label string
		d     time.Duration
	}{
		{"0.5 ms", 500 * time.Microsecond},
		{"1 ms", time.Millisecond},
		{"2 ms", 2 * time.Millisecond},
		{"5 ms", 5 * time.Millisecond},
		{"10 ms", 10 * time.Millisecond},
		{"20 ms", 20 * time.Millisecond},
		{"50 ms", 50 * time.Millisecond},
	}
	labels, bars := terminal.Left("up to", width+2), terminal.Left("", width+2)
	from := time.Duration(0)
	for _, bound := range bounds {
		labels += terminal.Left(bound.label, width)
		bars += terminal.Left(blocks(h.Share(from, bound.d), width-1), width)
		from = bound.d
	}
	return []string{
		"  " + s.Dim(labels+"more"),
		"  " + s.Name(bars+blocks(h.Share(from, histogram.Forever), 4)),
	}
}

// blocks draws a share of 1 in up to width columns.
func blocks(share float64, width int) string {
	eighths := []rune(" ▏▎▍▌▋▊▉")
	n := int(share*8*float64(width) + 0.5)
	if n == 0 && share > 0 {
		n = 1 // so that it is visible
	}
	t := strings.Repeat("█", n/8)
	if n%8 > 0 {
		t += string(eighths[n%8])
	}
	return t
}

func remaining(v view, s terminal.Style) string {
	if v.limit == 0 {
		return s.Dim(formatDuration(v.elapsed) + " · Ctrl-C to stop")
	}
	t := fmt.Sprintf("%s of %s", formatDuration(v.elapsed), formatDuration(v.limit))
	return s.Name(terminal.Bar(v.elapsed.Seconds()/v.limit.Seconds(), 24)) + s.Dim(" "+t+" · Ctrl-C to stop now")
}

// line returns the line that replaces the panel without a terminal.
func line(v view) string {
	t := fmt.Sprintf("%4.0f s  rows %s  rolled back %s  records %s  in flight %s  confirmed %s",
		v.elapsed.Seconds(), terminal.Number(v.rows), terminal.Number(v.rolledBack), terminal.Number(v.records), terminal.Number(v.missing), v.confirmed)
	if v.recent.Count() > 0 {
		t += fmt.Sprintf("  p50 %s  p99 %s", formatDuration(v.recent.Quantile(0.5)), formatDuration(v.recent.Quantile(0.99)))
	}
	if v.disordered+v.duplicates+v.invented > 0 {
		t += fmt.Sprintf("  out of order %s  duplicates %s  unexpected %s", terminal.Number(v.disordered), terminal.Number(v.duplicates), terminal.Number(v.invented))
	}
	if v.relay != relayStreaming {
		t += "  relay " + v.relay
	}
	return t
}
