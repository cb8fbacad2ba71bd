package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A fact is a line with a label.
type fact struct{ label, text string }

// labelWidth is the width of the labels, in characters.
const labelWidth = 16

// slot draws the slot as Postgres reports it, or as it last reported it to the relay.
func (v View) slot(r *Report) []string {
	s := r.Postgres.Slot
	var facts []fact
	title := "Slot"
	switch st := r.Relay.status; {
	case s != nil:
		state := "not active"
		if s.Active {
			state = fmt.Sprintf("active, WAL sender %d", s.ActivePID)
		}
		title += " " + s.Name
		facts = append(facts,
			fact{"State", strings.TrimSpace(cmp.Or(s.WALStatus, "no WAL")+" "+s.Invalidation) + ", " + state},
			fact{"Confirmed LSN", s.Confirmed + ", " + terminal.Size(s.NotConfirmed) + " behind the end of the WAL"},
			fact{"Retained WAL", terminal.Size(s.Retained) + ", from " + s.Restart})
		facts = append(facts, limit(s.reserve().Judge(r.At).Limit, s.Retained, s.Safe, r.timeToLimit())...)
		if s.Synced {
			last := "successful"
			if s.SyncSkipReason != "" {
				last = "skipped, " + s.SyncSkipReason
			}
			facts = append(facts, fact{"Copy", "of the primary's slot; last synchronization: " + last})
		}
		if d := s.Decoding; d.SpilledTransactions > 0 {
			facts = append(facts, fact{"Spilled to disk", fmt.Sprintf("%s of %d transactions larger than logical_decoding_work_mem", terminal.Size(d.SpilledBytes), d.SpilledTransactions)})
		}
		if t := r.Postgres.Oldest; t != nil && t.Age > longOpen.Seconds() {
			facts = append(facts, fact{"Oldest writer", fmt.Sprintf("%s, open for %s: Postgres retains WAL for it", t.name(), terminal.Duration(t.Age))})
		}
	case st != nil && st.Slot.ReadAt != nil:
		title += " " + st.Slot.Name
		facts = append(facts,
			fact{"State", cmp.Or(st.Slot.WALStatus, terminal.NotKnown) + ", as the relay read it " + ago(st.Slot.ReadAt, st.At)},
			fact{"Confirmed LSN", st.Source.Confirmed},
			fact{"Retained WAL", terminal.Size(st.Slot.Retained)})
		facts = append(facts, limit(st.Slot.Limit, st.Slot.Retained, st.Slot.Safe, r.timeToLimit())...)
	default:
		return nil
	}
	lines := []string{v.Style.Bold(terminal.Cut(title, v.Width))}
	if st := r.Relay.status; st != nil && len(st.Source.Neighbours) > 0 {
		facts = append(facts, fact{"Skipped tables", strings.Join(st.Source.Neighbours, ", ") + ": published, but not in outbox.tables"})
	}
	if r.Postgres.Error != "" && !strings.Contains(r.Why, r.Postgres.Error) {
		facts = append(facts, fact{"Postgres", r.Postgres.Error})
	}
	for _, f := range facts {
		lines = append(lines, v.fact(f)...)
	}
	return lines
}

// fact draws a fact: the label beside the text if there is room, otherwise before it.
func (v View) fact(f fact) []string {
	label, width := f.label, labelWidth
	if v.Width < narrow {
		f.text, label, width = f.label+": "+f.text, "", 0
	}
	var lines []string
	for _, line := range v.wrap(f.text, v.Width-2-width) {
		lines = append(lines, "  "+v.pair(label, line, width))
		label = ""
	}
	return lines
}

// longOpen is how long a transaction may be open before it gets a line.
const longOpen = 5 * time.Minute

func (t *Transaction) name() string {
	if t.PID == 0 {
		return "prepared transaction " + t.GID
	}
	return fmt.Sprintf("transaction of process %d", t.PID)
}

// limit returns text, which is a [catalog.Risk]'s Limit, and, if there is a limit that is not reached yet, how full it is
// and the time until then.
func limit(text string, retained int64, safe *int64, seconds float64) []fact {
	if safe == nil || *safe <= 0 {
		return []fact{{"Limit", text}}
	}
	used := float64(retained) / float64(max(1, retained+*safe))
	return []fact{
		{"Limit", terminal.Bar(used, 10) + " " + text},
		{"Time to limit", terminal.Duration(seconds)},
	}
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
	lines := []string{v.Style.Dim(row("Destination", "records/s", "records", "size"))}
	for i, t := range st.Topics {
		if i == most {
			lines = append(lines, v.Style.Dim(fmt.Sprintf("and %d more", len(st.Topics)-most)))
			break
		}
		lines = append(lines, row(t.Name, terminal.Count(t.Rate), terminal.Count(t.Records), terminal.Size(t.Bytes)))
	}
	if len(st.Topics) == 0 {
		lines = append(lines, "No records yet.")
	}
	if n := st.Totals.DeadLetters; n > 0 {
		count := "Dead letters: " + terminal.Count(n)
		lines = append(lines, v.Style.Warn(count))
	}
	if n := st.Parked.Number; n > 0 {
		parked := "Parked keys: " + terminal.Count(n) + ", for " + terminal.Duration(st.Parked.Oldest)
		lines = append(lines, v.Style.Warn(parked))
	}
	return lines
}

// mostErrors is the number of errors shown.
const mostErrors = 3

func (v View) errors(r *Report, st *admin.Status) []string {
	lines := []string{v.Style.Dim("Last errors")}
	if st.Sink.LastError != "" {
		lines = append(lines, v.fault(ago(st.Sink.LastErrorAt, st.At)+" · "+st.Sink.Broker+", retried", st.Sink.LastError, "")...)
	}
	for _, f := range st.Failures[:min(mostErrors, len(st.Failures))] {
		note := ago(&f.At, st.At)
		if f.Section != "" {
			note += " · see " + f.Section
		}
		if f.Times > 1 {
			note += fmt.Sprintf(" · %d times in %s", f.Times, terminal.Duration(f.At.Sub(f.Since).Round(time.Second).Seconds()))
		}
		advice := f.Advice
		if strings.HasPrefix(r.Advice, advice) {
			advice = "" // the verdict has it
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
	for _, line := range v.wrap(text, v.Width-2) {
		lines = append(lines, "  "+line)
	}
	return append(lines, v.advice(advice, "  ")...)
}

// ago returns how long before now t was.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	return terminal.Duration(max(0, now.Sub(*t).Round(time.Second).Seconds())) + " ago"
}
