package encode

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseReplacement splits a replacement string of Java, for what match matches, into its
// pieces: a backslash makes the next character literal, $12 and ${name} are groups, and of the
// digits behind $ as many count as still give a group that exists.
func parseReplacement(replace string, match *regexp.Regexp) ([]piece, error) {
	p := replacementParser{text: replace, match: match}
	for p.at < len(replace) {
		var err error
		switch c := replace[p.at]; c {
		case '\\':
			if p.at++; p.at == len(replace) {
				return nil, p.wrong(p.at-1, `\ has nothing behind it; a backslash is written \\`)
			}
			p.literal.WriteByte(replace[p.at])
			p.at++
		case '$':
			err = p.group()
		default:
			p.literal.WriteByte(c)
			p.at++
		}
		if err != nil {
			return nil, err
		}
	}
	p.flush()
	return p.pieces, nil
}

type replacementParser struct {
	text    string
	match   *regexp.Regexp
	at      int
	literal strings.Builder // since the last group
	pieces  []piece
}

func (p *replacementParser) wrong(offset int, format string, args ...any) error {
	return &RuleError{Part: "replace", Text: p.text, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

func (p *replacementParser) flush() {
	if p.literal.Len() > 0 {
		p.pieces = append(p.pieces, piece{text: p.literal.String(), group: -1})
		p.literal.Reset()
	}
}

// group reads a reference, which begins with $ where p is.
func (p *replacementParser) group() error {
	dollar, rest := p.at, p.text[p.at+1:]
	var n, length int
	switch {
	case strings.HasPrefix(rest, "{"):
		name, _, closed := strings.Cut(rest[1:], "}")
		if n = p.match.SubexpIndex(name); !closed || n < 0 {
			return p.wrong(dollar, "there is no group ${%s}; the groups are: %s", name, p.groups())
		}
		length = len("${}") + len(name)
	case rest != "" && isDigit(rest[0]):
		n, length = int(rest[0]-'0'), 2
		if n > p.match.NumSubexp() {
			return p.wrong(dollar, "there is no group $%d; the groups are: %s", n, p.groups())
		}
		for _, c := range []byte(rest[1:]) {
			next := 10*n + int(c-'0')
			if !isDigit(c) || next > p.match.NumSubexp() {
				break
			}
			n = next
			length++
		}
	default:
		return p.wrong(dollar, `$ must begin $1 or ${name}; a dollar sign is written \$`)
	}
	p.flush()
	p.pieces = append(p.pieces, piece{group: n})
	p.at += length
	return nil
}

// groups lists what can be referred to.
func (p *replacementParser) groups() string {
	var out []string
	for i, name := range p.match.SubexpNames() {
		out = append(out, fmt.Sprintf("$%d", i))
		if name != "" {
			out = append(out, "${"+name+"}")
		}
	}
	return strings.Join(slices.Compact(out), ", ")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
