package fault

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
)

// numbers matches the parts in which errors of one kind differ: ports, process ids, seconds, LSNs.
var numbers = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+|\d+`)

// Kind returns the text of err without its numbers. Errors of one kind have the same.
func Kind(err error) string { return kindOf(err.Error()) }

func kindOf(text string) string { return numbers.ReplaceAllString(text, "#") }

// maxFailures is the number of failures that a Relay keeps.
const maxFailures = 8

// A Failure is an error that ended a session or an attempt to start one. Consecutive errors of the same
// kind are one Failure.
type Failure struct {
	First, Last time.Time
	Times       int
	Text        string
	ExitCode    int    // as returned by the function ExitCode
	Advice      string // as returned by the function Advice, or the next step; may be empty
	Section     string // the section of the documentation about it; may be empty
}

// step returns the next step after err as a sentence, for a relay that retries: without what follows it, and without the section.
func step(err error) string {
	next, _, _ := strings.Cut(Next(err), " (docs/")
	for _, after := range []string{", then run the command again", ", then start the relay"} {
		next = strings.TrimSuffix(next, after)
	}
	if next == "" {
		return ""
	}
	return strings.ToUpper(next[:1]) + next[1:] + "."
}

// Failures are sorted, the newest last.
type Failures []Failure

// Add adds err, which occurred at now. It is part of the newest Failure if that is of the same kind. Errors that say that another
// process uses the relay's identity are of one kind: brokers and requests word them differently.
func (f *Failures) Add(err error, now time.Time) {
	code := ExitCode(err)
	if n := len(*f); n > 0 {
		last := &(*f)[n-1]
		if kindOf(last.Text) == Kind(err) || last.ExitCode == exit.Fenced && code == exit.Fenced {
			last.Text, last.Last = err.Error(), now
			last.Times++
			return
		}
	}
	if len(*f) == maxFailures {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, Failure{First: now, Last: now, Times: 1, Text: err.Error(), ExitCode: code, Advice: cmp.Or(Advice(err), step(err)), Section: section(err)})
}
