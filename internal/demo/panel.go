package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
)

// A view is everything the panel, the lines and the summary show, at one moment.
type view struct {
	elapsed time.Duration
	limit   time.Duration // 0: until interrupted

	counts
	rate float64 // rows a second, over the last one

	relay     string // what it is doing
	confirmed pglogrepl.LSN
	server    pglogrepl.LSN // where the server writes; 0: not known

	all, recent *histogram.Histogram
	arrivals    []arrival
}

const arrivalsShown = 6

// panel draws v, 79 columns wide and always as many lines.
func panel(v view, s style) []string {
	lines := []string{
		"",
		heading(s),
		pair(s, "transactions", number(v.transactions), "state", v.relay, "records", number(v.records)),
		pair(s, "rows", number(v.rows), "confirmed", v.confirmed.String(), "in flight", number(v.missing)),
		pair(s, "rolled back", number(v.rolledBack), "server at", lsn(v.server), "out of order", number(v.disordered)),
		pair(s, "rows a second", number(int(v.rate+0.5)), "behind", behind(v), "duplicates", number(v.duplicates)),
		"",
		"  " + s.name("COMMIT to consumer") + "  " + latencies(v.recent, s) + s.dim("  in the last 5 s"),
	}
	lines = append(lines, distribution(v.recent, s)...)
	lines = append(lines, "", "  "+s.dim(left("topic", 33)+left("key", 15)+left("type", 19)+right("after", 8)))
	for i := range arrivalsShown {
		if i >= len(v.arrivals) {
			lines = append(lines, "")
			continue
		}
		a := v.arrivals[len(v.arrivals)-1-i]
		lines = append(lines, "  "+left(a.topic, 32)+" "+left(a.key, 14)+" "+left(a.kind, 18)+" "+right(span(a.took), 8))
	}
	return append(lines, "", "  "+remaining(v, s))
}

func heading(s style) string {
	return "  " + s.bold(left("order service", 26)) + s.bold(left("relay", 28)) + s.bold("consumer")
}

// pair prints one line of the three blocks.
func pair(s style, name1, value1, name2, value2, name3, value3 string) string {
	return "  " + s.dim(left(name1, 14)) + right(value1, 9) + "   " +
		s.dim(left(name2, 11)) + right(value2, 14) + "   " +
		s.dim(left(name3, 13)) + right(value3, 9)
}

func lsn(l pglogrepl.LSN) string {
	if l == 0 {
		return "-"
	}
	return l.String()
}

// behind is how much of what the server has written is not confirmed.
func behind(v view) string {
	if v.server == 0 {
		return "-"
	}
	return size(max(0, int64(v.server)-int64(v.confirmed)))
}

func latencies(h *histogram.Histogram, s style) string {
	if h.Count() == 0 {
		return "-"
	}
	return fmt.Sprintf("p50 %s   p99 %s   max %s", s.bold(span(h.Quantile(0.5))), s.bold(span(h.Quantile(0.99))), s.bold(span(h.Max())))
}

// distribution draws the share of latencies up to each of some bounds, and above the last.
func distribution(h *histogram.Histogram, s style) []string {
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
	labels, bars := left("up to", width+2), left("", width+2)
	from := time.Duration(0)
	for _, bound := range bounds {
		labels += left(bound.label, width)
		bars += left(blocks(h.Share(from, bound.d), width-1), width)
		from = bound.d
	}
	return []string{
		"  " + s.dim(labels+"more"),
		"  " + s.name(bars+blocks(h.Share(from, histogram.Forever), 4)),
	}
}

// blocks draws a share of 1 in up to width columns.
func blocks(share float64, width int) string {
	eighths := []rune(" ▏▎▍▌▋▊▉")
	n := int(share*8*float64(width) + 0.5)
	if n == 0 && share > 0 {
		n = 1 // what is there shows
	}
	t := strings.Repeat("█", n/8)
	if n%8 > 0 {
		t += string(eighths[n%8])
	}
	return t
}

func remaining(v view, s style) string {
	if v.limit == 0 {
		return s.dim(span(v.elapsed) + " · Ctrl-C ends with a summary")
	}
	t := fmt.Sprintf("%s of %s", span(v.elapsed), span(v.limit))
	return s.name(bar(v.elapsed.Seconds()/v.limit.Seconds(), 24)) + s.dim(" "+t+" · Ctrl-C ends now, with the summary")
}

// line is what replaces the panel where there is no terminal.
func line(v view) string {
	t := fmt.Sprintf("%4.0f s  rows %s  rolled back %s  records %s  in flight %s  confirmed %s",
		v.elapsed.Seconds(), number(v.rows), number(v.rolledBack), number(v.records), number(v.missing), v.confirmed)
	if v.recent.Count() > 0 {
		t += fmt.Sprintf("  p50 %s  p99 %s", span(v.recent.Quantile(0.5)), span(v.recent.Quantile(0.99)))
	}
	if v.disordered+v.duplicates+v.invented > 0 {
		t += fmt.Sprintf("  out of order %s  duplicates %s  invented %s", number(v.disordered), number(v.duplicates), number(v.invented))
	}
	if v.relay != relayStreaming {
		t += "  relay " + v.relay
	}
	return t
}
