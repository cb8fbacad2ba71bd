package javaregex

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	wordBoundary   = `(?:(?<=[0-9A-Z_a-z])(?![0-9A-Z_a-z])|(?<![0-9A-Z_a-z])(?=[0-9A-Z_a-z]))`
	noWordBoundary = `(?:(?<=[0-9A-Z_a-z])(?=[0-9A-Z_a-z])|(?<![0-9A-Z_a-z])(?![0-9A-Z_a-z]))`
	lineBreak      = `(?:\r\n|[\n-\r\x{85}\x{2028}\x{2029}])`
)

// escape translates an escape outside of a class.
func (t *translator) escape() error {
	switch c := t.escaped(); c {
	case 'Q':
		quoted, end, _ := strings.Cut(t.text[t.at+2:], `\E`)
		t.at = len(t.text) - len(end)
		for _, r := range quoted {
			t.literal(r)
		}
		return nil
	case 'A', 'z':
		t.write(2, `\`+string(c), single)
		return nil
	case 'Z':
		t.write(2, lastTerminator, single)
		return nil
	case 'R':
		t.write(2, lineBreak, composite)
		return nil
	case 'b', 'B':
		if strings.HasPrefix(t.text[t.at+2:], "{") {
			return t.unsupported(t.at, t.text[t.at:t.at+3])
		}
		boundary := wordBoundary
		if c == 'B' {
			boundary = noWordBoundary
		}
		t.write(2, boundary, single)
		return nil
	case 'k', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return t.backreference()
	}
	set, err := t.classEscape()
	if err != nil {
		return err
	}
	if set != "" {
		t.write(0, "["+set+"]", single)
		return nil
	}
	r, err := t.char()
	if err != nil {
		return err
	}
	t.literal(r)
	return nil
}

// escaped returns the byte after the backslash at t.at, or 0 if there is none.
func (t *translator) escaped() byte {
	if t.at+1 == len(t.text) {
		return 0
	}
	return t.text[t.at+1]
}

// backreference translates \k<name> and \1. As in Java, as many digits count as still form the number of a
// group that has started.
func (t *translator) backreference() error {
	m := regexp.MustCompile(`^\\(?:k<([a-zA-Z][a-zA-Z0-9]*)>|([1-9])([0-9]*))`).FindStringSubmatch(t.text[t.at:])
	if m == nil {
		return t.wrong(t.at, `\k must be followed by <name>`)
	}
	length, n := len(m[0]), groupNamed(t.groups, m[1])
	if m[1] == "" {
		n, length = groupNumber(m[2]+m[3], len(t.groups))
		length += len(`\`)
	}
	reference := t.text[t.at : t.at+length]
	switch {
	case n < 0 || n >= len(t.groups):
		return t.wrong(t.at, "no group before %s has this name or number", reference)
	case !t.groups[n].complete:
		return t.unsupported(t.at, "the back reference "+reference+" to a group that is repeated or not closed")
	case t.flags.ignoreCase:
		return t.unsupported(t.at, "the back reference "+reference+" under the flag i")
	case t.inLookbehind():
		return t.unsupported(t.at, "the back reference "+reference+" in a lookbehind")
	}
	t.write(length, fmt.Sprintf(`\k<%d>`, n), single)
	return nil
}

// groupNumber parses the number of a group: the first digit, and as many others as still form a number below
// limit.
func groupNumber(digits string, limit int) (n, length int) {
	for i, c := range []byte(digits) {
		next := 10*n + int(c-'0')
		if i > 0 && (c < '0' || c > '9' || next >= limit) {
			return n, i
		}
		n = next
	}
	return n, len(digits)
}

// char parses one character, which may be an escape.
func (t *translator) char() (rune, error) {
	if !t.follows(`\`) {
		r, size := utf8.DecodeRuneInString(t.text[t.at:])
		t.at += size
		return r, nil
	}
	named := map[byte]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'a': '\a', 'e': 0x1B}
	c := t.escaped()
	switch r, ok := named[c]; {
	case c == 0:
		return 0, t.wrong(t.at, `\ has nothing after it; a backslash is written \\`)
	case ok:
		t.at += 2
		return r, nil
	case c == '0', c == 'x', c == 'u':
		return t.number()
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c):
		return 0, t.unsupported(t.at, t.text[t.at:t.at+2])
	}
	r, size := utf8.DecodeRuneInString(t.text[t.at+1:])
	t.at += 1 + size
	return r, nil
}

// number parses a character given by its number: \0377, \xFF, \x{10FFFF}, \uFFFF.
func (t *translator) number() (rune, error) {
	m := regexp.MustCompile(`^\\(?:0([0-3][0-7]{2}|[0-7]{1,2})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4}))`).
		FindStringSubmatch(t.text[t.at:])
	if m == nil {
		return 0, t.wrong(t.at, "no character of Java is written like this")
	}
	base := 16
	if m[1] != "" {
		base = 8
	}
	n, err := strconv.ParseInt(m[1]+m[2]+m[3]+m[4], base, 64)
	if err != nil || n > unicode.MaxRune || !utf8.ValidRune(rune(n)) {
		return 0, t.unsupported(t.at, m[0])
	}
	t.at += len(m[0])
	return rune(n), nil
}
