package debezium

import (
	"fmt"
	"io"
	"slices"
)

// A verdict says how exactly a key is imported.
type verdict string

// The verdicts.
const (
	same     verdict = "1:1"  // has the same meaning here
	partial  verdict = "PART" // imported with a difference, which the finding states
	noted    verdict = "NOTE" // not required here, or without effect on records
	rejected verdict = "REJ"  // cannot be imported
)

// A Finding is the verdict on a key.
type Finding struct {
	key     string // as written in the file; with "(default)" if it is not in the file
	verdict verdict
	text    string // one sentence, without secrets
}

// String returns the key and the sentence.
func (f Finding) String() string { return f.key + ": " + f.text }

// A Report has the findings of an import, in the order of the mapping table.
type Report struct {
	form     string // form of the input, such as "Connect REST body"
	name     string // of the connector
	findings []Finding

	before []string // what to do before the relay starts
}

// Refused returns the findings that prevent the import.
func (r *Report) Refused() []Finding {
	return slices.DeleteFunc(slices.Clone(r.findings), func(f Finding) bool { return f.verdict != rejected })
}

// WriteTo writes one line per finding, rejected keys last, and a summary.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	width := 0
	for _, f := range r.findings {
		width = max(width, len(f.key))
	}
	var out []byte
	out = fmt.Appendf(out, "%s, connector %q\n", r.form, r.name)
	refused := r.Refused()
	for _, f := range r.findings {
		if f.verdict != rejected {
			out = fmt.Appendf(out, "  %-4s  %-*s  %s\n", f.verdict, width, f.key, f.text)
		}
	}
	for _, f := range refused {
		out = fmt.Appendf(out, "  %-4s  %-*s  %s\n", f.verdict, width, f.key, f.text)
	}
	if len(refused) > 0 {
		out = fmt.Appendf(out, "rejected: %d of %d; no configuration is written\n", len(refused), len(r.findings))
	} else {
		out = fmt.Appendf(out, "converted: %d of %d\n", len(r.findings), len(r.findings))
	}
	n, err := w.Write(out)
	return int64(n), err
}
