package encode

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escape translates what begins with a backslash, outside of classes.
func (p *regexParser) escape() error {
	start := p.at
	switch c := p.escaped(); c {
	case 'Q':
		quoted, _, closed := strings.Cut(p.text[start+2:], `\E`)
		for _, r := range quoted {
			p.literal(r)
		}
		p.at += 2 + len(quoted)
		if closed {
			p.at += 2
		}
	case 'A', 'z', 'b', 'B':
		if strings.HasPrefix(p.text[start+2:], "{") {
			return p.unsupported(start, p.text[start:start+3])
		}
		p.pass(2)
	case 'k', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.unsupported(start, "the reference back "+p.text[start:start+2])
	default:
		set, err := p.classEscape()
		if err != nil {
			return err
		}
		if set != "" {
			p.out.WriteString("[" + set + "]")
			return nil
		}
		r, err := p.char()
		if err != nil {
			return err
		}
		p.literal(r)
	}
	return nil
}

// escaped returns the byte behind the backslash where p is, 0 if there is none.
func (p *regexParser) escaped() byte {
	if p.at+1 == len(p.text) {
		return 0
	}
	return p.text[p.at+1]
}

// classEscape takes an escape that stands for several characters, and returns what it is inside
// of a class; "" if it is not such an escape.
func (p *regexParser) classEscape() (set string, err error) {
	switch c := p.escaped(); c {
	case 'd', 'D', 'w', 'W':
		set = `\` + string(c)
	case 's':
		set = `\t-\r `
	case 'S':
		set = `\x00-\x08\x0E-\x1F!-\x{10FFFF}`
	case 'p', 'P':
		return p.property(c == 'P')
	default:
		return "", nil
	}
	p.at += 2
	return set, nil
}

// property takes \p{name} or \pX.
func (p *regexParser) property(negated bool) (string, error) {
	m := regexp.MustCompile(`^\\[pP](?:\{(\w+)\}|([A-Z]))`).FindStringSubmatch(p.text[p.at:])
	if m == nil {
		return "", p.unsupported(p.at, p.text[p.at:p.at+2])
	}
	name, not, letter := m[1]+m[2], "", "p"
	if negated {
		not, letter = "^", "P"
	}
	posix := []string{"Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank", "Cntrl", "XDigit", "Space"}
	is, isUnicode := strings.CutPrefix(name, "Is")
	var set string
	switch {
	case slices.Contains(posix, name):
		set = "[:" + not + strings.ToLower(name) + ":]"
	case unicode.Categories[is] != nil, isUnicode && unicode.Scripts[is] != nil:
		set = `\` + letter + "{" + is + "}"
	default:
		return "", p.unsupported(p.at, m[0])
	}
	p.at += len(m[0])
	return set, nil
}

// char takes one character, which may be written as an escape.
func (p *regexParser) char() (rune, error) {
	if !p.follows(`\`) {
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += size
		return r, nil
	}
	named := map[byte]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'a': '\a', 'e': 0x1B}
	c := p.escaped()
	switch r, ok := named[c]; {
	case c == 0:
		return 0, p.wrong(p.at, `\ has nothing behind it; a backslash is written \\`)
	case ok:
		p.at += 2
		return r, nil
	case c == '0', c == 'x', c == 'u':
		return p.number()
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c):
		return 0, p.unsupported(p.at, p.text[p.at:p.at+2])
	}
	r, size := utf8.DecodeRuneInString(p.text[p.at+1:])
	p.at += 1 + size
	return r, nil
}

// number takes a character written as its number: \0377, \xFF, \x{10FFFF}, \uFFFF.
func (p *regexParser) number() (rune, error) {
	m := regexp.MustCompile(`^\\(?:0([0-3][0-7]{2}|[0-7]{1,2})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4}))`).
		FindStringSubmatch(p.text[p.at:])
	if m == nil {
		return 0, p.wrong(p.at, "no character of Java is written like this")
	}
	base := 16
	if m[1] != "" {
		base = 8
	}
	n, err := strconv.ParseInt(m[1]+m[2]+m[3]+m[4], base, 64)
	if err != nil || n > unicode.MaxRune || !utf8.ValidRune(rune(n)) {
		return 0, p.unsupported(p.at, m[0])
	}
	p.at += len(m[0])
	return rune(n), nil
}

// class translates [ … ].
func (p *regexParser) class() error {
	start := p.at
	p.pass(1)
	if p.follows("^") {
		p.pass(1)
	}
	for first := true; ; first = false {
		switch {
		case p.at == len(p.text):
			return p.wrong(start, "the class is not closed")
		case p.follows("]") && !first:
			p.pass(1)
			return nil
		case p.follows("["):
			return p.unsupported(p.at, "a class within a class")
		case p.follows("&&"):
			return p.unsupported(p.at, "the intersection of classes &&")
		case p.follows(`\Q`):
			return p.unsupported(p.at, `\Q within a class`)
		}
		if err := p.classItem(); err != nil {
			return err
		}
	}
}

// classItem takes an escape, a character or a range of a class.
func (p *regexParser) classItem() error {
	if p.follows(`\`) {
		set, err := p.classEscape()
		if set != "" || err != nil {
			p.out.WriteString(set)
			return err
		}
	}
	start := p.at
	from, err := p.char()
	if err != nil {
		return err
	}
	to := from
	if p.follows("-") && len(p.text) > p.at+1 && !strings.ContainsAny(p.text[p.at+1:p.at+2], "[]") {
		p.at++
		if to, err = p.char(); err != nil {
			return err
		}
		if to < from {
			return p.wrong(start, "the range ends before it begins")
		}
	}
	p.span(from, to)
	if p.flags.fold {
		for _, letters := range [][2]rune{{'a', 'z'}, {'A', 'Z'}} {
			if lo, hi := max(from, letters[0]), min(to, letters[1]); lo <= hi {
				p.span(otherCase(lo), otherCase(hi))
			}
		}
	}
	return nil
}

func (p *regexParser) span(from, to rune) { fmt.Fprintf(&p.out, `\x{%X}-\x{%X}`, from, to) }
