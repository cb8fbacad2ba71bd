package status

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A station is a stage on the path of a row.
type station struct {
	name, main string
	facts      [2]string
}

// streams reports whether the relay reads rows. Without that, it knows no lag.
func streams(st *admin.Status) bool { return st.State == string(relay.Streaming) }

// shownLSN returns lsn, or NotKnown for the position of a relay that has not read anything.
func shownLSN(lsn string) string {
	if lsn == "0/0" {
		return terminal.NotKnown
	}
	return lsn
}

// way draws the path of a row: Postgres, decoder, the records in flight, and the broker.
func (v View) way(st *admin.Status) []string {
	lag := terminal.NotKnown
	if streams(st) {
		lag = terminal.Size(st.Lag.Bytes) + " lag"
	}
	stations := []station{
		{"Postgres", lag, [2]string{"WAL ends at", shownLSN(st.Source.ServerEnd)}},
		{"Decoder", terminal.Count(st.Rates.Rows) + " rows/s", [2]string{terminal.Size(st.Rates.Log) + "/s of WAL", "at " + shownLSN(st.Source.Received)}},
		{"In flight", terminal.Count(st.InFlight.Records) + " records", [2]string{
			terminal.Size(st.InFlight.Bytes), terminal.Bar(float64(st.InFlight.Full), 8) + fmt.Sprintf(" %.0f %%", 100*float64(st.InFlight.Full)),
		}},
		{st.Sink.Broker, terminal.Count(st.Rates.Records) + " records/s", [2]string{terminal.Size(st.Rates.Bytes) + "/s", "ack p99 " + terminal.Duration(st.Latency.AckP99)}},
	}
	if v.Width < beside {
		var lines []string
		for _, s := range stations {
			main := terminal.Cut(s.main, v.Width-10)
			if room := v.Width - 10 - utf8.RuneCountInString(main); room > 0 {
				main += v.Style.Dim(terminal.Cut("  "+s.facts[1], room))
			}
			lines = append(lines, v.pair(s.name, main, 10))
		}
		return lines
	}
	lines := make([]string, 4)
	width := v.Width / len(stations)
	for i, s := range stations {
		arrow := "  "
		if i < len(stations)-1 {
			arrow = "→ "
		}
		cell := func(text string) string { return terminal.Left(text, width-3) + " " }
		lines[0] += v.Style.Dim(cell(s.name) + arrow)
		lines[1] += v.Style.Bold(cell(s.main)) + "  "
		lines[2] += v.Style.Dim(cell(s.facts[0])) + "  "
		lines[3] += v.Style.Dim(cell(s.facts[1])) + "  "
	}
	return lines
}

// pair prints a name in width characters, and then text, which may be colored and must fit.
func (v View) pair(name, text string, width int) string {
	return v.Style.Dim(terminal.Left(name, width)) + text
}

// A chart is a quantity over time.
type chart struct{ name, now, column string }

// visible returns the latency of transactions. One counts when it and every earlier one are acknowledged.
func visible(st *admin.Status) string {
	if math.IsNaN(float64(st.Latency.CommitToAckP50)) && st.Rates.Records > 0 {
		return "oldest not acknowledged"
	}
	return "p50 " + terminal.Duration(st.Latency.CommitToAckP50) + ", p99 " + terminal.Duration(st.Latency.CommitToAckP99)
}

func (v View) charts(st *admin.Status) []string {
	lag := terminal.NotKnown
	if streams(st) {
		lag = terminal.Duration(st.Lag.Seconds)
	}
	charts := []chart{
		{"Lag", lag, "lag_seconds"},
		{"Consumer-visible latency", visible(st), "commit_to_ack_p99"},
		{"Records per second", terminal.Count(st.Rates.Records), "records_per_second"},
	}
	const nowWidth = 24
	nameWidth := min(26, v.Width/2)
	var lines []string
	for _, c := range charts {
		line := v.pair(c.name, terminal.Cut(c.now, max(1, v.Width-nameWidth)), nameWidth)
		if room := v.Width - nameWidth - nowWidth; room >= 20 {
			drawn, since := v.draw(c.column, room-8)
			line = v.pair(c.name, terminal.Left(c.now, nowWidth)+v.Style.Name(drawn)+v.Style.Dim(terminal.Right(since, 8)), nameWidth)
		}
		lines = append(lines, line)
	}
	return lines
}

// draw draws a column of the history in width characters, each the greatest value of its time, and returns the time
// span: one of three, so that it seldom changes.
func (v View) draw(column string, width int) (line, since string) {
	if v.History == nil {
		return strings.Repeat(" ", width), ""
	}
	times, numbers := v.History.Column("at"), v.History.Column(column)
	if len(times) == 0 || len(numbers) != len(times) {
		return strings.Repeat(" ", width), ""
	}
	end := times[len(times)-1]
	length, label := 900.0, "15 min"
	for _, shorter := range []struct {
		length float64
		label  string
	}{{300, "5 min"}, {60, "1 min"}} {
		if end-times[0] <= shorter.length {
			length, label = shorter.length, shorter.label
		}
	}
	greatest := make([]float64, width)
	for i := range greatest {
		greatest[i] = math.NaN()
	}
	for i, n := range numbers {
		at := width - 1 - int((end-times[i])/length*float64(width))
		if at >= 0 && !math.IsNaN(n) && !(greatest[at] >= n) { // also where there is none yet
			greatest[at] = n
		}
	}
	return terminal.Sparkline(greatest), label
}
