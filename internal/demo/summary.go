package demo

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/histogram"
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
func summary(r result, s style) []string {
	const width = 12
	fact := func(what, value, remark string) string {
		if remark != "" {
			remark = "   " + remark
		}
		return "  " + left(what, 22) + value + s.dim(remark)
	}
	zero := func(n int) string { return s.zero(n, right(number(n), width)) }
	verdict := s.good("✔ ") + "Everything that was committed has arrived, in order, and nothing else."
	switch {
	case r.broken():
		verdict = s.red("✘ ") + "What has arrived is not what was committed."
	case r.ended:
		verdict = s.red("✘ ") + "An error ended this."
	case r.records == 0:
		verdict = "Nothing was written."
	}
	lost := "lost"
	if r.ended {
		lost = "not delivered yet"
	}
	return []string{
		"",
		fact("rows committed", right(number(r.rows), width), fmt.Sprintf("in %s transactions", number(r.transactions))),
		fact("rows rolled back", right(number(r.rolledBack), width), "on purpose: none of them may arrive"),
		fact("records received", right(number(r.records), width), ""),
		fact(lost, zero(r.lost), "compared with the rows in the database"),
		fact("out of order", zero(r.disordered), "per key, in the order of the commits"),
		fact("invented", zero(r.invented), "records without a committed row"),
		fact("duplicates", right(number(r.duplicates), width), ""),
		"",
		"  " + left("COMMIT to consumer", 22) + latencies(r.latency, s),
		"  " + left("", 22) + s.dim(r.remark),
		"",
		"  " + verdict,
	}
}

// next says how to go on from here.
func next(s style) []string {
	return []string{
		"",
		"  Next, with a database and a Kafka of your own:",
		"",
		"    " + s.name("outbox-cdc migrate up --dsn postgres://user@host/db"),
		"    " + s.name("outbox-cdc run --dsn postgres://user@host/db --brokers host:9092 \\"),
		"    " + s.name("    --publication outbox_cdc --slot outbox_cdc"),
	}
}
