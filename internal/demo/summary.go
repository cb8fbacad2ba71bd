package demo

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A result is what the summary shows.
type result struct {
	counts
	lost    int
	latency *histogram.Histogram
	remark  string // about the latency
	ended   bool   // with an error

	chaos bool // Options.Chaos
	blows blows
}

// broken reports whether the delivered records differ from the committed rows, duplicates only with Options.Chaos. After an error, rows that did not arrive
// are not lost: Postgres retains them.
func (r result) broken() bool {
	return r.lost != 0 && !r.ended || r.disordered != 0 || r.invented != 0 || r.chaos && r.duplicates != 0
}

// summary returns the lines of the summary.
func summary(r result, s terminal.Style) []string {
	const width = 12
	fact := func(what, value, remark string) string {
		if remark != "" {
			remark = "   " + remark
		}
		return "  " + terminal.Left(what, 22) + value + s.Dim(remark)
	}
	zero := func(n int) string { return zero(s, n, terminal.Right(terminal.Number(n), width)) }
	verdict := s.Good("✔ ") + "Every committed row has arrived, in order, and nothing else."
	switch {
	case r.broken():
		verdict = s.Red("✘ ") + "The records differ from the committed rows."
	case r.ended:
		verdict = s.Red("✘ ") + "The demo stopped with an error."
	case r.records == 0:
		verdict = "No rows were written."
	}
	duplicates := fact("duplicates", terminal.Right(terminal.Number(r.duplicates), width), "")
	if r.chaos {
		duplicates = fact("duplicates", zero(r.duplicates), "in the topics, as read_uncommitted reads them")
	}
	lost := "lost"
	if r.ended {
		lost = "not delivered yet"
	}
	lines := []string{
		"",
		fact("rows committed", terminal.Right(terminal.Number(r.rows), width), fmt.Sprintf("in %s transactions", terminal.Number(r.transactions))),
		fact("rows rolled back", terminal.Right(terminal.Number(r.rolledBack), width), "on purpose; none of them may arrive"),
		fact("records received", terminal.Right(terminal.Number(r.records), width), ""),
		fact(lost, zero(r.lost), "compared with the rows in the database"),
		fact("out of order", zero(r.disordered), "per key, in the order of the commits"),
		fact("unexpected", zero(r.invented), "records without a committed row"),
		duplicates,
		"",
		"  " + terminal.Left("COMMIT to consumer", 22) + latencies(r.latency, s),
		"  " + terminal.Left("", 22) + s.Dim(r.remark),
		"",
		"  " + verdict,
	}
	if r.chaos {
		lines = append(lines, "", fmt.Sprintf("  %s · %s %s · out of order %s · duplicates %s",
			r.blows, lost, terminal.Number(r.lost), terminal.Number(r.disordered), terminal.Number(r.duplicates)))
	}
	return lines
}

// next returns the commands to try next, each with the role that runs it.
func next(k kind, s terminal.Style) []string {
	lines := []string{"", "  Next, with your own Postgres and " + k.title + " (see " + k.page + "):"}
	for _, step := range []struct{ role, command string }{
		{"the table's owner, to create the table", "migrate up --dsn postgres://owner@host/db"},
		{"the owner, with REPLICATION, to create the publication and the slot", "setup --dsn postgres://owner@host/db"},
		{"the relay's role, with LOGIN and REPLICATION; it also names missing topics, streams or queues", "check --dsn postgres://cdc@host/db " + k.flags},
		{"the relay's role", "run --dsn postgres://cdc@host/db " + k.flags},
	} {
		lines = append(lines, "", "    "+s.Dim("as "+step.role), "    "+s.Name("outbox-cdc "+step.command))
	}
	return lines
}
