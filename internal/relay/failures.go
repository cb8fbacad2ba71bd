package relay

import (
	"slices"
	"time"
)

// keptFailures is how many failures are remembered.
const keptFailures = 8

// A Failure is what ended a session, or what was waited for. Attempts that fail one after the
// other for the same reason are one.
type Failure struct {
	First, Last time.Time
	Times       int
	Text        string
	ExitCode    int    // that the process would end with
	Advice      string // as [Advice]
}

// failures are the newest last. The zero value is none.
type failures []Failure

func (f *failures) add(err error, now time.Time) {
	if n := len(*f); n > 0 {
		last := &(*f)[n-1]
		if numbers.ReplaceAllString(last.Text, "#") == numbers.ReplaceAllString(err.Error(), "#") {
			last.Text, last.Last = err.Error(), now
			last.Times++
			return
		}
	}
	if len(*f) == keptFailures {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, Failure{First: now, Last: now, Times: 1, Text: err.Error(), ExitCode: ExitCode(err), Advice: Advice(err)})
}
