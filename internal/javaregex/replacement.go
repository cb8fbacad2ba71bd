package javaregex

import (
	"fmt"
	"strings"
)

// A Replacement is a parsed replacement string, for [Pattern.ReplaceFirst] of its Pattern.
type Replacement []piece

// A piece is literal text or, if group is not negative, the match of that group.
type piece struct {
	text  string
	group int
}

// Replacement parses a Java replacement string. A backslash makes the next character literal. $12 and ${name}
// are groups; after $, as many digits count as still form the number of an existing group. The error is a
// [*syntaxError].
func (p *Pattern) Replacement(text string) (Replacement, error) {
	r := replacementParser{text: text, pattern: p}
	for r.at < len(text) {
		var err error
		switch c := text[r.at]; c {
		case '\\':
			if r.at++; r.at == len(text) {
				return nil, r.wrong(r.at-1, `\ has nothing after it; a backslash is written \\`)
			}
			r.literal.WriteByte(text[r.at])
			r.at++
		case '$':
			err = r.group()
		default:
			r.literal.WriteByte(c)
			r.at++
		}
		if err != nil {
			return nil, err
		}
	}
	r.flush()
	return r.pieces, nil
}

type replacementParser struct {
	text    string
	pattern *Pattern
	at      int
	literal strings.Builder // since the last group
	pieces  Replacement
}

func (r *replacementParser) wrong(offset int, format string, args ...any) error {
	return &syntaxError{text: r.text, offset: offset, reason: fmt.Sprintf(format, args...)}
}

func (r *replacementParser) flush() {
	if r.literal.Len() > 0 {
		r.pieces = append(r.pieces, piece{text: r.literal.String(), group: -1})
		r.literal.Reset()
	}
}

// group parses a group reference, which starts with the $ at r.at.
func (r *replacementParser) group() error {
	dollar, rest := r.at, r.text[r.at+1:]
	groups := r.pattern.groups
	var n, length int
	switch {
	case strings.HasPrefix(rest, "{"):
		name, _, closed := strings.Cut(rest[1:], "}")
		if n = groupNamed(groups, name); !closed || n < 0 {
			return r.wrong(dollar, "there is no group ${%s}; the groups are: %s", name, r.groups())
		}
		length = len("{}") + len(name)
	case rest != "" && isDigit(rest[0]):
		if n, length = groupNumber(rest, len(groups)); n >= len(groups) {
			return r.wrong(dollar, "there is no group $%d; the groups are: %s", n, r.groups())
		}
	default:
		return r.wrong(dollar, `$ must begin $1 or ${name}; a dollar sign is written \$`)
	}
	r.flush()
	r.pieces = append(r.pieces, piece{group: n})
	r.at += len("$") + length
	return nil
}

// groups lists the groups of the pattern, for errors.
func (r *replacementParser) groups() string {
	var out []string
	for i, g := range r.pattern.groups {
		out = append(out, fmt.Sprintf("$%d", i))
		if g.name != "" {
			out = append(out, "${"+g.name+"}")
		}
	}
	return strings.Join(out, ", ")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
