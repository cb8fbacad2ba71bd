package encode

import (
	"fmt"
	"regexp"
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
	whole   *regexp.Regexp // Match, over all of the name
	part    *regexp.Regexp // Match, anywhere
	replace []piece
}

// A piece of a replacement is literal text or, where group is not negative, what that group
// has matched.
type piece struct {
	text  string
	group int
}

// A RuleError is a part of a [TopicRule] that is wrong or cannot be had. Java's expressions can
// look around and refer back; ours, of [regexp/syntax], take time linear in the name instead.
type RuleError struct {
	Part   string // match, replace
	Text   string // of that part
	Offset int    // in bytes, of what is at fault
	Reason string // names it
}

// Error says what is at fault and where.
func (e *RuleError) Error() string {
	return fmt.Sprintf("%s: in %q at offset %d: %s", e.Part, e.Text, e.Offset, e.Reason)
}

// ParseRule returns the rule of a regular expression and a replacement string of Java:
// https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/regex/Pattern.html
// and Matcher.replaceFirst there. The error is a [*RuleError]. One difference is not noticed: what
// a group has matched that is repeated and may be empty, as in (a*)*.
func ParseRule(match, replace string) (*Rule, error) {
	expression, err := translateRegex(match)
	if err != nil {
		return nil, err
	}
	part, err := regexp.Compile(expression)
	if err != nil {
		return nil, &RuleError{Part: "match", Text: match, Reason: err.Error()}
	}
	whole, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	if err != nil {
		return nil, &RuleError{Part: "match", Text: match, Reason: err.Error()}
	}
	pieces, err := parseReplacement(replace, part)
	if err != nil {
		return nil, err
	}
	return &Rule{whole: whole, part: part, replace: pieces}, nil
}

// Apply returns what the rule makes of a topic's name.
func (r *Rule) Apply(name string) string {
	if !r.whole.MatchString(name) {
		return name
	}
	at := r.part.FindStringSubmatchIndex(name)
	out := []byte(name[:at[0]])
	for _, p := range r.replace {
		if p.group < 0 {
			out = append(out, p.text...)
		} else if from, to := at[2*p.group], at[2*p.group+1]; from >= 0 {
			out = append(out, name[from:to]...)
		}
	}
	return string(append(out, name[at[1]:]...))
}
