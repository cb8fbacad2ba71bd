package status

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// slot is what Postgres says of it, or what it last said to the relay.
func (v View) slot(r *Report) []string {
	s := r.Postgres.Slot
	var facts []string
	title := "Slot"
	switch st := r.Relay.status; {
	case s != nil:
		reader := "nobody reads it"
		if s.Active {
			reader = fmt.Sprintf("read by process %d", s.ActivePID)
		}
		title += " " + s.Name
		facts = []string{
			cmp.Or(s.WALStatus, "no log") + ", " + reader,
			terminal.Size(float64(s.NotConfirmed)) + " not confirmed, from " + s.Confirmed,
			terminal.Size(float64(s.Retained)) + " of log kept, from " + s.Restart,
			v.remaining(s.Retained, s.Safe, r.timeToFull()),
		}
		if t := r.Postgres.Oldest; t != nil && t.Age > longOpen.Seconds() {
			facts = append(facts, fmt.Sprintf("%s has been open for %s and holds the log", t.name(), terminal.Span(t.Age)))
		}
	case st != nil && st.Slot.ReadAt != nil:
		title += " " + st.Slot.Name
		facts = []string{
			cmp.Or(st.Slot.WALStatus, terminal.NotKnown) + ", as the relay has read " + ago(st.Slot.ReadAt, st.At),
			terminal.Size(float64(st.Slot.Retained)) + " of log kept",
			v.remaining(st.Slot.Retained, st.Slot.Safe, r.timeToFull()),
		}
	default:
		return nil
	}
	lines := []string{v.Style.Bold(terminal.Cut(title, v.Width))}
	if r.Postgres.Error != "" && !strings.Contains(r.Why, r.Postgres.Error) {
		facts = append(facts, "Postgres was not reached: "+r.Postgres.Error)
	}
	for _, fact := range facts {
		for _, line := range terminal.Wrap(fact, v.Width-2) {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// longOpen is how long a transaction may be open before it is worth a line.
const longOpen = 5 * time.Minute

func (t *Transaction) name() string {
	if t.PID == 0 {
		return "Prepared transaction " + t.GID
	}
	return fmt.Sprintf("A transaction of process %d", t.PID)
}

// remaining returns how much WAL may still be written before the slot is invalidated.
func (v View) remaining(retained int64, safe *int64, full float64) string {
	switch {
	case safe == nil:
		return "no limit: a full disk stops the server"
	case *safe <= 0:
		return "no room left"
	}
	taken := float64(retained) / float64(max(1, retained+*safe))
	text := terminal.Size(float64(*safe)) + " of room left " + terminal.Bar(taken, 10)
	if math.IsNaN(full) {
		return text + " not filling"
	}
	return text + " full in " + terminal.Span(full)
}

func (r *Report) topics() int {
	if r.Relay.status == nil {
		return 0
	}
	return len(r.Relay.status.Topics)
}

func (v View) topics(st *admin.Status, most int) []string {
	columns := []int{12, 14, 10}
	if v.Width < narrow {
		columns = []int{10, 0, 0}
	}
	first := v.Width - columns[0] - columns[1] - columns[2]
	row := func(name string, numbers ...string) string {
		line := terminal.Left(terminal.Cut(name, first-1), first) + terminal.Right(numbers[0], columns[0])
		if columns[1] == 0 {
			return line
		}
		return line + terminal.Right(numbers[1], columns[1]) + terminal.Right(numbers[2], columns[2])
	}
	lines := []string{v.Style.Dim(row("Topic", "a second", "records", "size"))}
	for i, t := range st.Topics {
		if i == most {
			lines = append(lines, v.Style.Dim(fmt.Sprintf("and %d more", len(st.Topics)-most)))
			break
		}
		lines = append(lines, row(t.Name, terminal.Count(float64(t.Rate)), terminal.Count(float64(t.Records)), terminal.Size(float64(t.Bytes))))
	}
	if len(st.Topics) == 0 {
		lines = append(lines, "Nothing acknowledged yet.")
	}
	if n := st.Totals.DeadLetters; n > 0 {
		lines = append(lines, v.Style.Warn(terminal.Count(float64(n))+" dead letters"))
	}
	return lines
}

// mostErrors is how many of the last errors are shown.
const mostErrors = 3

func (v View) errors(r *Report, st *admin.Status) []string {
	lines := []string{v.Style.Dim("Last errors")}
	if st.Kafka.LastError != "" {
		lines = append(lines, v.fault(ago(st.Kafka.LastErrorAt, st.At)+" · Kafka, was tried again", st.Kafka.LastError, "")...)
	}
	for _, f := range st.Failures[:min(mostErrors, len(st.Failures))] {
		note := fmt.Sprintf("%s · would be exit code %d", ago(&f.At, st.At), f.ExitCode)
		if f.Times > 1 {
			note += fmt.Sprintf(" · %d times in %s", f.Times, terminal.Span(f.At.Sub(f.Since).Round(time.Second).Seconds()))
		}
		advice := f.Advice
		if advice == r.Advice {
			advice = "" // it stands at the top
		}
		lines = append(lines, v.fault(note, f.Text, advice)...)
	}
	if len(lines) == 1 {
		return append(lines, "None since the start.")
	}
	return lines
}

func (v View) fault(note, text, advice string) []string {
	lines := []string{v.Style.Dim(terminal.Cut(note, v.Width))}
	for _, line := range terminal.Wrap(text, v.Width-2) {
		lines = append(lines, "  "+line)
	}
	return append(lines, v.advice(advice, "  ")...)
}

// ago is how long before now t was.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return terminal.Span(max(0, now.Sub(*t).Round(time.Second).Seconds())) + " ago"
}
