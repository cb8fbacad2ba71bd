package debezium

import (
	"fmt"
	"io"
	"slices"
)

// A Verdict says how faithfully a key is carried over.
type Verdict string

// The verdicts.
const (
	Same    Verdict = "1:1"  // means the same here
	Part    Verdict = "PART" // carried over, with the difference that is stated
	Note    Verdict = "NOTE" // not needed here, or without effect on the records
	Refused Verdict = "REJ"  // cannot be carried over
)

// A Finding is the verdict on one key.
type Finding struct {
	Key     string // as it is written in the file; "(default)" behind it: it is not in the file
	Verdict Verdict
	Text    string // one sentence, without secrets
}

// A Report is what an import found, in the order of the mapping table.
type Report struct {
	Form     string // what was read: "Connect REST body"
	Name     string // the connector's
	Findings []Finding
}

// Refused returns the findings that keep the configuration from being carried over.
func (r *Report) Refused() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Verdict != Refused })
}

// WriteTo writes one line per finding, refusals last, and a summary.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Key))
	}
	var out []byte
	out = fmt.Appendf(out, "%s, connector %q\n", r.Form, r.Name)
	refused := r.Refused()
	for _, f := range r.Findings {
		if f.Verdict != Refused {
			out = fmt.Appendf(out, "  %-4s  %-*s  %s\n", f.Verdict, width, f.Key, f.Text)
		}
	}
	for _, f := range refused {
		out = fmt.Appendf(out, "  %-4s  %-*s  %s\n", f.Verdict, width, f.Key, f.Text)
	}
	if len(refused) > 0 {
		out = fmt.Appendf(out, "refused: %d of %d; no configuration is written\n", len(refused), len(r.Findings))
	} else {
		out = fmt.Appendf(out, "carried over: %d of %d\n", len(r.Findings), len(r.Findings))
	}
	n, err := w.Write(out)
	return int64(n), err
}
