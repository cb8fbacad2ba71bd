package encode

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// translateRegex returns the expression of [regexp/syntax] that matches what a java.util.regex
// one does. What only means something else there is written out: the flags i (ASCII letters
// only, in Java) and s, the dot (which stops at five line terminators) and \s. The error is a
// [*RuleError].
func translateRegex(text string) (string, error) {
	p := &regexParser{text: text}
	for p.at < len(text) {
		if err := p.element(); err != nil {
			return "", err
		}
	}
	if n := len(p.open); n > 0 {
		return "", p.wrong(p.open[n-1].at, "the group is not closed")
	}
	return p.out.String(), nil
}

// notTerminators is what the dot of Java matches.
const notTerminators = `[^\n\r\x{85}\x{2028}\x{2029}]`

type regexParser struct {
	text  string
	at    int
	out   strings.Builder
	flags regexFlags
	open  []regexGroup // the groups around at, outermost first
	names []string     // of groups
}

type regexFlags struct{ fold, dotAll bool }

// A regexGroup is one that is open.
type regexGroup struct {
	at     int
	before regexFlags // in force again behind it
}

func (p *regexParser) wrong(offset int, format string, args ...any) error {
	return &RuleError{Part: "match", Text: p.text, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// unsupported is the error for what Java has and we have not.
func (p *regexParser) unsupported(offset int, what string) error {
	return p.wrong(offset, "%s cannot be expressed; write the rule without it", what)
}

// element translates what begins where p is.
func (p *regexParser) element() error {
	switch c := p.text[p.at]; c {
	case '\\':
		return p.escape()
	case '[':
		return p.class()
	case '(':
		return p.group()
	case ')':
		n := len(p.open)
		if n == 0 {
			return p.wrong(p.at, "the parenthesis closes nothing")
		}
		p.flags, p.open = p.open[n-1].before, p.open[:n-1]
		p.pass(1)
	case '*', '+', '?':
		return p.quantifier(1)
	case '{':
		length := len(regexp.MustCompile(`^\{\d+(,\d*)?\}|`).FindString(p.text[p.at:]))
		if length == 0 {
			return p.wrong(p.at, `{ must begin a repetition such as {2,3}; a brace is written \{`)
		}
		return p.quantifier(length)
	case '.':
		p.at++
		if p.flags.dotAll {
			p.out.WriteString(`(?s:.)`)
		} else {
			p.out.WriteString(notTerminators)
		}
	case '^', '$', '|':
		p.pass(1)
	default:
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += size
		p.literal(r)
	}
	return nil
}

// pass takes n bytes as they are.
func (p *regexParser) pass(n int) {
	p.out.WriteString(p.text[p.at : p.at+n])
	p.at += n
}

// literal writes a rune that stands for itself.
func (p *regexParser) literal(r rune) {
	if p.flags.fold && otherCase(r) != r {
		p.out.WriteString("[" + string(r) + string(otherCase(r)) + "]")
		return
	}
	p.out.WriteString(regexp.QuoteMeta(string(r)))
}

// otherCase returns the other case of an ASCII letter, any other rune as it is.
func otherCase(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r ^ 0x20
	}
	return r
}

// quantifier takes one of so many bytes, and the ? behind it that makes it reluctant.
func (p *regexParser) quantifier(length int) error {
	start := p.at
	p.pass(length)
	switch {
	case p.follows("?"):
		p.pass(1)
	case p.follows("+"):
		return p.unsupported(start, "the possessive quantifier "+p.text[start:p.at+1])
	}
	return nil
}

func (p *regexParser) follows(s string) bool { return strings.HasPrefix(p.text[p.at:], s) }

// group opens a group or changes the flags.
func (p *regexParser) group() error {
	for construct, what := range map[string]string{
		"(?=": "lookahead", "(?!": "negative lookahead", "(?<=": "lookbehind", "(?<!": "negative lookbehind", "(?>": "an atomic group",
	} {
		if p.follows(construct) {
			return p.unsupported(p.at, what+" "+construct)
		}
	}
	start := p.at
	if !p.follows("(?") {
		p.begin(1, "(")
		return nil
	}
	if m := regexp.MustCompile(`^\(\?<([a-zA-Z][a-zA-Z0-9]*)>`).FindStringSubmatch(p.text[start:]); m != nil {
		if slices.Contains(p.names, m[1]) {
			return p.wrong(start, "there are two groups <%s>", m[1])
		}
		p.names = append(p.names, m[1])
		p.begin(len(m[0]), "(?P<"+m[1]+">")
		return nil
	}
	m := regexp.MustCompile(`^\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])`).FindStringSubmatch(p.text[start:])
	if m == nil {
		return p.wrong(start, "no group of Java begins like this")
	}
	flags := p.flags
	for i, letters := range m[1:3] {
		for _, letter := range letters {
			switch letter {
			case 'i':
				flags.fold = i == 0
			case 's':
				flags.dotAll = i == 0
			default:
				return p.unsupported(start, "the flag "+string(letter))
			}
		}
	}
	if m[3] == ":" {
		p.begin(len(m[0]), "(?:")
	} else {
		p.at += len(m[0])
	}
	p.flags = flags
	return nil
}

// begin opens a group whose beginning has so many bytes and is written so.
func (p *regexParser) begin(length int, written string) {
	p.open = append(p.open, regexGroup{at: p.at, before: p.flags})
	p.at += length
	p.out.WriteString(written)
}
