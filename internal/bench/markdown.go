package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// markdown returns the report as Markdown: first the checks, then the measurements.
func (r *report) markdown() string {
	var text strings.Builder
	r.writeChecks(&text)
	r.writeMachine(&text)
	if len(r.Drains) > 0 {
		r.writeDrains(&text)
	}
	if len(r.Latency) > 0 {
		r.writeLatency(&text)
	}
	r.writeRatios(&text)
	if len(r.Resting) > 0 {
		r.writeResting(&text)
	}
	if len(r.Outages) > 0 {
		r.writeOutages(&text)
	}
	return text.String()
}

func (r *report) writeChecks(text *strings.Builder) {
	text.WriteString("Every record was checked by an independent consumer.\n\n")
	t := newTable(text, "contender", "measurements", "records", "lost", "duplicates", "out of order", "altered")
	for _, c := range r.Checks {
		v := c.Verdict
		t.row(c.Contender, terminal.Number(c.Measurements), terminal.Number(c.Records),
			terminal.Number(v.Lost), terminal.Number(v.Duplicates), terminal.Number(v.OutOfOrder), terminal.Number(v.Altered))
	}
	for _, f := range r.Failures {
		first, _, _ := strings.Cut(f, "\n")
		fmt.Fprintf(text, "\n**Not measured:** %s\n", first)
	}
	if r.NotCompared != "" {
		fmt.Fprintf(text, "\n**Not compared with pg_recvlogical:** %s\n", r.NotCompared)
	}
}

func (r *report) writeMachine(text *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(text, "\n%s, %d cores, %d GB, %s, load %s before. Postgres %s. %s. Relay %s, %s.",
		cmp.Or(m.CPU, "unknown processor"), m.Cores, m.MemoryGB, m.Kernel, m.Load, m.Postgres, m.Broker, m.Relay, m.Go)
	if m.Library != "" {
		fmt.Fprintf(text, " The client library is %s.", m.Library)
	}
	if m.Java != "" {
		fmt.Fprintf(text, " %s.", m.Java)
	}
	if m.Debezium != "" {
		fmt.Fprintf(text, " Debezium %s.", m.Debezium)
	}
	if r.Sink == kafkaKind {
		text.WriteString(" Before the measurements, a plain producer wrote two records to each partition, because a broker is slow with the first ones.")
	}
	fmt.Fprintf(text, " Suite %s on %s, medians of %d, %s in all.\n", r.Suite, r.Started.UTC().Format("2006-01-02"), r.Runs, r.Took)
}

func (r *report) writeDrains(text *strings.Builder) {
	contenders := r.drained()
	sections := []struct {
		title string
		cell  func(*drainEntry, *drainEntry) string
	}{
		{"Rows per second (× " + floorName + ")", rateCell},
		{"Batches per second (rows in a batch)", batchCell},
		{"CPU-seconds per million rows", func(e, _ *drainEntry) string { return figure(median(e.Runs, cpuPerMillion)) }},
		{"Peak memory, MB", func(e, _ *drainEntry) string { return figure(highest(e.Runs, drainMemory)) }},
	}
	if !r.hasBatches() {
		sections = slices.Delete(sections, 1, 2)
	}
	for _, section := range sections {
		fmt.Fprintf(text, "\n#### %s\n\n", section.title)
		t := newTable(text, append([]string{"backlog", "codec"}, contenders...)...)
		for _, d := range r.Drains {
			for _, codec := range d.Case.Compressions {
				cells := []string{d.Case.Name, codec}
				for _, c := range contenders {
					cells = append(cells, drainCell(d.find(c, codec), d.find(floorName, codec), section.cell))
				}
				t.row(cells...)
			}
		}
	}
}

// hasBatches reports whether the batches of a drain are known.
func (r *report) hasBatches() bool {
	for _, d := range r.Drains {
		for _, e := range d.Entries {
			if median(e.Runs, rowsPerBatch) > 0 {
				return true
			}
		}
	}
	return false
}

// drained returns the names of all contenders with a drain, in order.
func (r *report) drained() []string {
	var names []string
	for _, d := range r.Drains {
		for _, e := range d.Entries {
			if !slices.Contains(names, e.Contender) {
				names = append(names, e.Contender)
			}
		}
	}
	return names
}

func drainCell(e, floor *drainEntry, cell func(e, floor *drainEntry) string) string {
	if e == nil || len(e.Runs) == 0 {
		return "–"
	}
	return cell(e, floor)
}

func rateCell(e, floor *drainEntry) string {
	rate := figure(median(e.Runs, rowRate))
	if floor == nil || floor == e {
		return rate
	}
	if x, ok := ratio(e.Runs, floor.Runs, rowRate); ok {
		return fmt.Sprintf("%s (%.2f)", rate, x)
	}
	return rate
}

// writeOver says what the rows were spread over, unless that is usual.
func (r *report) writeOver(text *strings.Builder) {
	if !r.Over.usual() {
		fmt.Fprintf(text, "Rows of %s keys, over %s.\n\n", terminal.Number(r.Over.Keys), r.Over.where())
	}
}

func batchCell(e, _ *drainEntry) string {
	size := median(e.Runs, rowsPerBatch)
	if size == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s)", figure(median(e.Runs, batchRate)), figure(size))
}

func (r *report) writeLatency(text *strings.Builder) {
	text.WriteString("\n#### Commit to consumer, ms\n\n")
	r.writeOver(text)
	t := newTable(text, "transactions/s", "contender", "p50", "p90", "p99", "p99.9", "max", "CPU, % of a core", "memory, MB")
	for _, l := range r.Latency {
		for _, e := range l.Entries {
			if len(e.Runs) == 0 {
				t.row(terminal.Number(l.Rate), e.Contender, "–", "–", "–", "–", "–", "–", "–")
				continue
			}
			cells := []string{terminal.Number(l.Rate), e.Contender}
			for _, of := range []func(measure.LatencyResult) float64{p50, p90, p99, p999, slowest, cores} {
				cells = append(cells, figure(median(e.Runs, of)))
			}
			t.row(append(cells, figure(highest(e.Runs, latencyMemory)))...)
		}
	}
}

// writeRatios compares the relay with the client library, if both were measured.
func (r *report) writeRatios(text *strings.Builder) {
	var rows [][]string
	for _, d := range r.Drains {
		for _, codec := range d.Case.Compressions {
			if ours, theirs := d.find(relayName, codec), d.find(measure.LibraryName, codec); ours != nil && theirs != nil {
				rows = append(rows, []string{
					d.Case.Name, quotient(ours.Runs, theirs.Runs, rowRate), quotient(ours.Runs, theirs.Runs, cpuPerMillion), "–", "–",
				})
			}
		}
	}
	for _, l := range r.Latency {
		if ours, theirs := l.find(relayName), l.find(measure.LibraryName); ours != nil && theirs != nil {
			rows = append(rows, []string{
				terminal.Number(l.Rate) + "/s", "–", quotient(ours.Runs, theirs.Runs, cores),
				quotient(ours.Runs, theirs.Runs, p50), quotient(ours.Runs, theirs.Runs, p99),
			})
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(text, "\n#### %s ÷ %s\n\n", relayName, measure.LibraryName)
	t := newTable(text, "measurement", "rows per second", "CPU", "p50", "p99")
	for _, cells := range rows {
		t.row(cells...)
	}
}

// quotient returns a ratio as text.
func quotient[T any](ours, theirs series[T], of func(T) float64) string {
	if x, ok := ratio(ours, theirs, of); ok {
		return fmt.Sprintf("%.2f", x)
	}
	return "–"
}

func (r *report) writeOutages(text *strings.Builder) {
	text.WriteString("\n#### Memory without the broker, MB\n\n")
	t := newTable(text, "contender", "rows written", "seconds", "before", "highest", "at the end", "all delivered", "seconds to catch up", "CPU, % of a core")
	for _, o := range r.Outages {
		if len(o.Runs) == 0 {
			t.row(o.Contender, "–", "–", "–", "–", "–", "–", "–", "–")
			continue
		}
		of := func(f func(measure.OutageResult) float64) string { return figure(median(o.Runs, f)) }
		t.row(o.Contender,
			of(func(r measure.OutageResult) float64 { return float64(r.Rows) }),
			of(func(r measure.OutageResult) float64 { return r.Down.Seconds() }),
			of(func(r measure.OutageResult) float64 { return megabytes(r.Before) }),
			figure(highest(o.Runs, func(r measure.OutageResult) float64 { return megabytes(r.During) })),
			of(func(r measure.OutageResult) float64 { return megabytes(r.After) }),
			of(func(r measure.OutageResult) float64 { return megabytes(r.Delivered) }),
			of(func(r measure.OutageResult) float64 { return r.CatchUp.Seconds() }),
			of(func(r measure.OutageResult) float64 { return 100 * r.CPU.Seconds() / r.Down.Seconds() }))
	}
}

func (r *report) writeResting(text *strings.Builder) {
	text.WriteString("\n#### Starting and waiting\n\n")
	r.writeOver(text)
	t := newTable(text, "contender", "start to first record, ms", "idle, % of a core", "idle memory, MB")
	for _, e := range r.Resting {
		cells := []string{e.Contender, "–", "–", "–"}
		if len(e.StartUp) > 0 {
			cells[1] = figure(median(e.StartUp, milliseconds))
		}
		if len(e.Idle) > 0 {
			cells[2] = fmt.Sprintf("%.3f", median(e.Idle, func(i measure.IdleResult) float64 { return 100 * i.Share() }))
			cells[3] = figure(highest(e.Idle, func(i measure.IdleResult) float64 { return megabytes(i.RSS) }))
		}
		t.row(cells...)
	}
}

// A table is a Markdown table. The first column and the columns codec and contender
// are text, the others are numbers.
type table struct{ text *strings.Builder }

func newTable(text *strings.Builder, columns ...string) table {
	t := table{text}
	t.row(columns...)
	for i, c := range columns {
		if i == 0 || c == "codec" || c == "contender" {
			text.WriteString("|---")
		} else {
			text.WriteString("|--:")
		}
	}
	text.WriteString("|\n")
	return t
}

func (t table) row(cells ...string) {
	fmt.Fprintf(t.text, "| %s |\n", strings.Join(cells, " | "))
}
