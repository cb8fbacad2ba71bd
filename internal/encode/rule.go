package encode

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/javaregex"
)

// A TopicRule changes topic names like org.apache.kafka.connect.transforms.RegexRouter. If Match, a Java
// regular expression, matches the whole name, the first match is replaced with Replace, a Java
// replacement string. Other names stay unchanged.
type TopicRule struct {
	Match   string
	Replace string
}

// A Rule is a compiled [TopicRule]. It may be used from several goroutines.
type Rule struct {
	match   *javaregex.Pattern
	replace javaregex.Replacement
}

// ParseRule compiles a Java regular expression and a replacement string. The error names the invalid one and
// wraps a [*javaregex.SyntaxError].
func ParseRule(match, replace string) (*Rule, error) {
	pattern, err := javaregex.Compile(match)
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	replacement, err := pattern.Replacement(replace)
	if err != nil {
		return nil, fmt.Errorf("replace: %w", err)
	}
	return &Rule{match: pattern, replace: replacement}, nil
}

// apply returns the changed topic name. The error is [javaregex.ErrBacktracking].
func (r *Rule) apply(name string) (string, error) {
	if ok, err := r.match.Matches(name); !ok || err != nil {
		return name, err
	}
	return r.match.ReplaceFirst(name, r.replace)
}
