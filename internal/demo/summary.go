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
	remark  string // on the latency
	ended   bool   // by an error
}

// broken reports whether what was delivered is not what was committed. After an error what did not
// arrive is not lost: it is still in the log.
func (r result) broken() bool {
	return r.lost != 0 && !r.ended || r.disordered != 0 || r.invented != 0
}

// summary prints r.
func summary(r result, s terminal.Style) []string {
	const width = 12
	fact := func(what, value, remark string) string {
		if remark != "" {
			remark = "   " + remark
		}
		return "  " + terminal.Left(what, 22) + value + s.Dim(remark)
	}
	zero := func(n int) string { return zero(s, n, terminal.Right(terminal.Number(n), width)) }
	verdict := s.Good("✔ ") + "Everything that was committed has arrived, in order, and nothing else."
	switch {
	case r.broken():
		verdict = s.Red("✘ ") + "What has arrived is not what was committed."
	case r.ended:
		verdict = s.Red("✘ ") + "An error ended this."
	case r.records == 0:
		verdict = "Nothing was written."
	}
	lost := "lost"
	if r.ended {
		lost = "not delivered yet"
	}
	return []string{
		"",
		fact("rows committed", terminal.Right(terminal.Number(r.rows), width), fmt.Sprintf("in %s transactions", terminal.Number(r.transactions))),
		fact("rows rolled back", terminal.Right(terminal.Number(r.rolledBack), width), "on purpose: none of them may arrive"),
		fact("records received", terminal.Right(terminal.Number(r.records), width), ""),
		fact(lost, zero(r.lost), "compared with the rows in the database"),
		fact("out of order", zero(r.disordered), "per key, in the order of the commits"),
		fact("invented", zero(r.invented), "records without a committed row"),
		fact("duplicates", terminal.Right(terminal.Number(r.duplicates), width), ""),
		"",
		"  " + terminal.Left("COMMIT to consumer", 22) + latencies(r.latency, s),
		"  " + terminal.Left("", 22) + s.Dim(r.remark),
		"",
		"  " + verdict,
	}
}

// next says how to go on from here.
func next(s terminal.Style) []string {
	return []string{
		"",
		"  Next, with a database and a Kafka of your own:",
		"",
		"    " + s.Name("outbox-cdc migrate up --dsn postgres://user@host/db"),
		"    " + s.Name("outbox-cdc run --dsn postgres://user@host/db --brokers host:9092 \\"),
		"    " + s.Name("    --publication outbox_cdc --slot outbox_cdc"),
	}
}
