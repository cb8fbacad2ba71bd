package encode

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/javaregex"
)

// A TopicRule rewrites the name of a topic as org.apache.kafka.connect.transforms.RegexRouter
// does: if Match, a regular expression of Java, covers the whole name, then the first part of
// the name that it matches becomes Replace, a replacement string of Java. Other names stay.
type TopicRule struct {
	Match   string
	Replace string
}

// A Rule is a [TopicRule] ready to be applied. It may be used by several goroutines.
type Rule struct {
	match   *javaregex.Pattern
	replace javaregex.Replacement
}

// ParseRule returns the rule of a regular expression and a replacement string of Java. The error
// names the one that is wrong and wraps a [*javaregex.SyntaxError].
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

// apply returns what the rule makes of a topic's name. The error is [javaregex.ErrBacktracking].
func (r *Rule) apply(name string) (string, error) {
	if ok, err := r.match.Matches(name); !ok || err != nil {
		return name, err
	}
	return r.match.ReplaceFirst(name, r.replace)
}
