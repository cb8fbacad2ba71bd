package status

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// Widths of a View. From beside on, the path of a row is drawn from left to right, otherwise from top to bottom.
// Below narrow, a table has fewer columns.
const (
	widest = 110
	beside = 76
	narrow = 60
)

// A View draws a Report as text.
type View struct {
	Width  int            // characters of a line, at least 24
	Height int            // lines; 0: no limit
	Style  terminal.Style // of the text

	// History has the values of the charts; nil: none.
	History *admin.History
}

// Lines draws r: first what is wrong and what to do, then the path of a row, the slot, the topics and the last errors.
// No line is wider than Width, except one with a command if there is no Height. If there are more lines than Height, Lines
// leaves out the last topics, then the charts, then the end.
func (v View) Lines(r *Report) []string {
	v.Width = min(v.Width, widest)
	lines := v.lines(r, r.topics(), true)
	over := func() int { return len(lines) - v.Height }
	if v.Height <= 0 || over() <= 0 {
		return lines
	}
	fewer := max(1, r.topics()-over()-1) // one line says how many are left out
	if lines = v.lines(r, fewer, true); over() > 0 {
		lines = v.lines(r, fewer, false)
	}
	return lines[:min(len(lines), v.Height)]
}

func (v View) lines(r *Report, topics int, charts bool) []string {
	sections := [][]string{v.heading(r), v.verdict(r)}
	st := r.Relay.status
	if st != nil {
		sections = append(sections, v.way(st))
	}
	if st != nil && charts {
		sections = append(sections, v.charts(st))
	}
	sections = append(sections, v.slot(r))
	if st != nil {
		sections = append(sections, v.topics(st, topics), v.errors(r, st))
	}
	var all []string
	for _, s := range sections {
		if len(s) > 0 && len(all) > 0 {
			all = append(all, "")
		}
		all = append(all, s...)
	}
	return all
}

// heading names the relay, or the server if the relay did not respond.
func (v View) heading(r *Report) []string {
	st := r.Relay.status
	if st == nil {
		return []string{v.Style.Dim(terminal.Cut(r.Postgres.Address, v.Width))}
	}
	about := "outbox-cdc " + st.Version + ", up " + terminal.Duration(st.Uptime)
	name := terminal.Cut(st.Name, max(8, v.Width-utf8.RuneCountInString(about)-1))
	first := v.Style.Bold(name)
	if room := v.Width - utf8.RuneCountInString(name); room > utf8.RuneCountInString(about) {
		first += v.Style.Dim(terminal.Right(about, room))
	}
	return []string{first, v.Style.Dim(terminal.Cut(st.Source.Address+" → "+strings.Join(st.Sink.Brokers, ", "), v.Width))}
}

func (v View) verdict(r *Report) []string {
	mark, color := "●", v.Style.Good
	switch r.Level {
	case admin.Warn:
		mark, color = "▲", v.Style.Warn
	case admin.Bad:
		mark, color = "✘", v.Style.Red
	case admin.Good:
	}
	lines := []string{color(mark) + " " + v.Style.Bold(terminal.Cut(r.Title, v.Width-2))}
	for _, line := range v.wrap(sentence(r.Why), v.Width-2) {
		lines = append(lines, "  "+line)
	}
	if st := r.Relay.status; st != nil && st.Refill != nil {
		lines = append(lines, "  "+color(terminal.Bar(float64(st.Refill.Rows)/max(1, float64(st.Refill.Total)), min(40, v.Width-2))))
	}
	return append(lines, v.advice(r.Advice, "  ")...)
}

// sentence returns text with a capital letter, unless it begins with a command.
func sentence(text string) string {
	if strings.HasPrefix(text, "outbox-cdc ") {
		return text
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// advice draws what to do, after an arrow.
func (v View) advice(text, indent string) []string {
	var lines []string
	mark := "→ "
	for _, line := range v.wrap(text, v.Width-len(indent)-2) {
		lines = append(lines, indent+v.Style.Name(mark+line))
		mark = "  "
	}
	return lines
}

// wrap breaks text into lines of a width. Without a limit of lines, it leaves a line with a command to the terminal, so that the command can
// be copied.
func (v View) wrap(text string, width int) []string {
	if v.Height > 0 || !command.MatchString(text) {
		return terminal.Wrap(text, width)
	}
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if command.MatchString(line) {
			all = append(all, line)
		} else {
			all = append(all, terminal.Wrap(line, width)...)
		}
	}
	return all
}

var command = regexp.MustCompile(`outbox-cdc [a-z]|\.sh --|(ALTER|GRANT|SELECT|DROP|CREATE) `)
