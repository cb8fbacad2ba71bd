package javaregex

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// class translates [ … ].
func (t *translator) class() error {
	start, opening := t.at, "["
	if t.at++; t.follows("^") {
		t.at++
		opening = "[^"
	}
	t.write(0, opening, single)
	class := t.last
	for first := true; ; first = false {
		switch {
		case t.at == len(t.text):
			return t.wrong(start, "the class is not closed")
		case t.follows("]") && !first:
			t.write(1, "]", single)
			t.last = class
			return nil
		case t.follows("["):
			return t.unsupported(t.at, "a class within a class")
		case t.follows("&&"):
			return t.unsupported(t.at, "the intersection of classes &&")
		case t.follows(`\Q`):
			return t.unsupported(t.at, `\Q within a class`)
		}
		if err := t.classItem(); err != nil {
			return err
		}
	}
}

// classItem translates an escape, a character or a range of a class.
func (t *translator) classItem() error {
	start := t.at
	if t.follows(`\v-`) {
		return t.unsupported(t.at, `\v before -`) // Java takes it for the character U+000B here
	}
	if t.follows(`\`) {
		several, err := t.classEscape()
		isProperty := strings.HasPrefix(several, `\p`) || strings.HasPrefix(several, `\P`)
		if isProperty && bytes.Contains(t.out[t.last.start:], []byte(`\P`)) {
			// regexp2 2.12 does not reach a property after a negated one.
			return t.unsupported(start, `a property after \P in a class`)
		}
		if several != "" || err != nil {
			t.out = append(t.out, several...)
			return err
		}
	}
	from, err := t.char()
	if err != nil {
		return err
	}
	to := from
	if t.follows("-") && len(t.text) > t.at+1 && !strings.ContainsAny(t.text[t.at+1:t.at+2], "[]") {
		t.at++
		if to, err = t.char(); err != nil {
			return err
		}
		if to < from {
			return t.wrong(start, "the range ends before it begins")
		}
	}
	both := []rune{from, to}
	if t.flags.ignoreCase {
		for _, letters := range [][2]rune{{'a', 'z'}, {'A', 'Z'}} {
			if lo, hi := max(from, letters[0]), min(to, letters[1]); lo <= hi {
				both = append(both, otherCase(lo), otherCase(hi))
			}
		}
	}
	t.out = append(t.out, set(both)...)
	return nil
}

// ranges returns the characters of a predefined or POSIX class: the first and last of each range, in
// ascending order. It returns nil for any other name.
func ranges(name string) []rune {
	return []rune(map[string]string{
		"d": "09", "w": "09AZ__az", "s": "\t\r  ", "v": "\n\r\u0085\u0085\u2028\u2029",
		"h":     "\t\t  \u00a0\u00a0\u1680\u1680\u180e\u180e\u2000\u200a\u202f\u202f\u205f\u205f\u3000\u3000",
		"Lower": "az", "Upper": "AZ", "Alpha": "AZaz", "Digit": "09", "Alnum": "09AZaz", "ASCII": "\x00\x7F",
		"Punct": "!/:@[`{~", "Graph": "!~", "Print": " ~", "Blank": "\t\t  ", "Cntrl": "\x00\x1F\x7F\x7F",
		"XDigit": "09AFaf", "Space": "\t\r  ",
	}[name])
}

// set returns ranges in the syntax of a class.
func set(ranges []rune) string {
	var out strings.Builder
	for r := range slices.Chunk(ranges, 2) {
		fmt.Fprintf(&out, `\x{%X}-\x{%X}`, r[0], r[1])
	}
	return out.String()
}

// others returns the complement of ascending ranges.
func others(ranges []rune) (out []rune) {
	next := rune(0)
	for r := range slices.Chunk(ranges, 2) {
		if next < r[0] {
			out = append(out, next, r[0]-1)
		}
		next = r[1] + 1
	}
	return append(out, next, unicode.MaxRune)
}

// classEscape translates an escape for several characters, such as \d, to the syntax of a class. It returns ""
// for any other escape.
func (t *translator) classEscape() (string, error) {
	switch c := t.escaped(); c {
	case 'd', 'h', 's', 'v', 'w':
		t.at += 2
		return set(ranges(string(c))), nil
	case 'D', 'H', 'S', 'V', 'W':
		t.at += 2
		return set(others(ranges(strings.ToLower(string(c))))), nil
	case 'p', 'P':
		return t.property(c == 'P')
	}
	return "", nil
}

// property translates \p{name} and \pX.
func (t *translator) property(negated bool) (string, error) {
	m := regexp.MustCompile(`^\\[pP](?:\{(\w+)\}|([A-Z]))`).FindStringSubmatch(t.text[t.at:])
	if m == nil {
		return "", t.unsupported(t.at, t.text[t.at:t.at+2])
	}
	name := m[1] + m[2]
	is, isUnicode := strings.CutPrefix(name, "Is")
	if t.flags.ignoreCase {
		switch {
		case name == "Lower" || name == "Upper":
			name = "Alpha"
		case slices.Contains([]string{"Lu", "Ll", "Lt"}, is):
			return "", t.unsupported(t.at, m[0]+" under the flag i")
		}
	}
	posix := ranges(name)
	switch {
	case len(name) > 1 && len(posix) > 0: // a shorter name is an escape, such as \d
	case unicode.Categories[is] != nil, isUnicode && unicode.Scripts[is] != nil:
		t.at += len(m[0])
		return m[0][:2] + "{" + is + "}", nil
	default:
		return "", t.unsupported(t.at, m[0])
	}
	t.at += len(m[0])
	if negated {
		posix = others(posix)
	}
	return set(posix), nil
}
