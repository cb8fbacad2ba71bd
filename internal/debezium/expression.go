package debezium

import (
	"regexp"
	"sync"
)

// expressions holds the expressions of the source code that were compiled, by their text.
var expressions = struct { //nolint:gochecknoglobals // compiling them all at the start would delay every command
	sync.Mutex
	compiled map[string]*regexp.Regexp
}{compiled: make(map[string]*regexp.Regexp)}

// compileOnce returns the compiled expression. An import matches some of them against every option, and compiling one takes
// longer than that. expr must be one of the source code's, because it is kept for ever.
func compileOnce(expr string) *regexp.Regexp {
	expressions.Lock()
	defer expressions.Unlock()
	if expressions.compiled[expr] == nil {
		expressions.compiled[expr] = regexp.MustCompile(expr)
	}
	return expressions.compiled[expr]
}
