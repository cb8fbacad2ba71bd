package javaregex

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A translator writes a Java expression in the subset of regexp2's syntax that has the same meaning with all
// flags: characters and classes by number, groups without names.
type translator struct {
	text   string
	at     int
	out    []byte
	flags  flags
	open   []group   // groups around at, outermost first
	groups []capture // the capturing groups by number; the first is the whole match
	last   atom      // the element that a quantifier at this position repeats
}

type flags struct{ ignoreCase, dotAll bool }

// A group is a group that is not closed yet.
type group struct {
	at       int
	kind     string // (?= (?! (?<= (?<! (?>, empty for any other
	before   flags  // flags after the group
	start    int    // its place in out
	groups   int    // the number of its first capturing group
	captures bool   // that group is itself
}

// A capture is a capturing group.
type capture struct {
	name     string
	complete bool // it has ended, and it is not repeated
}

// An atom is an element that a quantifier repeats.
type atom struct {
	kind   atomKind
	start  int // its place in out
	groups int // the number of its first capturing group, if it has one
}

type atomKind int

const (
	nothing   atomKind = iota
	single             // matches in one way
	composite          // may match in several ways
	capturing          // captures, too
)

// These sets replace . and $, because Java has more line terminators than other engines.
const (
	notTerminators = `[^\n\r\x{85}\x{2028}\x{2029}]`
	lastTerminator = `(?=(?:\r\n|(?<!\r)\n|[\r\x{85}\x{2028}\x{2029}])?\z)`
)

// endAtomic ends an atomic group. Its branch never matches; it keeps regexp2 2.12 from joining an
// atomic repetition with the repetition around it, which would make (?>a+){2} match "aa".
const endAtomic = `|\z\x{0})`

func (t *translator) wrong(offset int, format string, args ...any) error {
	return &syntaxError{text: t.text, offset: offset, reason: fmt.Sprintf(format, args...)}
}

// unsupported returns the error for a construct of Java that cannot be translated.
func (t *translator) unsupported(offset int, what string) error {
	return t.wrong(offset, "%s is not supported; write the rule without it", what)
}

func (t *translator) translate() (string, error) {
	for t.at < len(t.text) {
		if err := t.element(); err != nil {
			return "", err
		}
	}
	if n := len(t.open); n > 0 {
		return "", t.wrong(t.open[n-1].at, "the group is not closed")
	}
	return string(t.out), nil
}

// element translates the element at t.at.
func (t *translator) element() error {
	switch c := t.text[t.at]; c {
	case '\\':
		return t.escape()
	case '[':
		return t.class()
	case '(':
		return t.openGroup()
	case ')':
		return t.closeGroup()
	case '*', '+', '?', '{':
		return t.quantifier()
	case '|':
		t.write(1, "|", nothing)
	case '^':
		t.write(1, `\A`, single)
	case '$':
		t.write(1, lastTerminator, single)
	case '.':
		set := notTerminators
		if t.flags.dotAll {
			set = `[\x{0}-\x{10FFFF}]`
		}
		t.write(1, set, single)
	default:
		r, size := utf8.DecodeRuneInString(t.text[t.at:])
		t.at += size
		t.literal(r)
	}
	return nil
}

// write appends s, the translation of the next n bytes of the expression, and skips these.
func (t *translator) write(n int, s string, kind atomKind) {
	t.at += n
	t.last = atom{kind: kind, start: len(t.out)}
	t.out = append(t.out, s...)
}

// literal appends a literal character.
func (t *translator) literal(r rune) {
	if other := otherCase(r); t.flags.ignoreCase && other != r {
		t.write(0, fmt.Sprintf(`[%c%c]`, r, other), single)
		return
	}
	t.write(0, fmt.Sprintf(`\x{%X}`, r), single)
}

// otherCase returns the other case of an ASCII letter. It returns any other character unchanged.
func otherCase(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r ^ 0x20
	}
	return r
}

func (t *translator) follows(s string) bool { return strings.HasPrefix(t.text[t.at:], s) }

// quantifier translates a quantifier.
func (t *translator) quantifier() error {
	m := regexp.MustCompile(`^([*+?]|\{(\d+)(?:,\d*)?\})([+?]?)`).FindStringSubmatch(t.text[t.at:])
	switch {
	case m == nil:
		return t.wrong(t.at, `{ must begin a repetition such as {2,3}; a brace is written \{`)
	case t.last.kind == nothing:
		return t.wrong(t.at, "there is nothing that %s could repeat", m[0])
	case t.inLookbehind() && (m[1] == "*" || m[1] == "+" || strings.HasSuffix(m[1], ",}")):
		return t.wrong(t.at, "%s has no upper limit, which Java needs in a lookbehind; write one, such as {0,20}", m[0])
	case m[3] == "+":
		return t.possessive(m[0], m[1], m[2])
	}
	t.repeat(m[0], m[0])
	return nil
}

// possessive translates a possessive quantifier to an atomic group.
func (t *translator) possessive(quantifier, greedy, atLeast string) error {
	n, err := strconv.Atoi(cmp.Or(atLeast, "0"))
	what := "the possessive quantifier " + quantifier
	switch {
	case t.inLookbehind():
		return t.unsupported(t.at, what+" in a lookbehind")
	case t.last.kind == capturing:
		return t.unsupported(t.at, what+" on a capturing group")
	case t.last.kind == composite && (n > 1 || err != nil):
		// Unlike other engines, Java does not backtrack into the required repetitions.
		return t.unsupported(t.at, what+" on a group")
	}
	t.out = slices.Insert(t.out, t.last.start, []byte("(?>")...)
	t.repeat(quantifier, greedy+endAtomic)
	return nil
}

// repeat appends a quantifier.
func (t *translator) repeat(quantifier, written string) {
	if t.last.kind == capturing && !strings.HasPrefix(quantifier, "?") {
		for i := t.last.groups; i < len(t.groups); i++ {
			t.groups[i].complete = false
		}
	}
	t.write(len(quantifier), written, nothing)
}

// within returns the first of kinds of which a group is around t.at, or "" if there is none.
func (t *translator) within(kinds ...string) string {
	for _, g := range t.open {
		if slices.Contains(kinds, g.kind) {
			return g.kind
		}
	}
	return ""
}

func (t *translator) inLookbehind() bool { return t.within("(?<=", "(?<!") != "" }

// groupStart matches the start of a group: its name, its kind, or the flags that it sets.
const groupStart = `^\((?:\?(?:<([a-zA-Z][a-zA-Z0-9]*)>|(<?[=!]|>)|([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])))?`

// openGroup translates the start of a group, or flags for the rest of the surrounding group.
func (t *translator) openGroup() error {
	m := regexp.MustCompile(groupStart).FindStringSubmatch(t.text[t.at:])
	start, name, kind, end := m[0], m[1], m[2], m[5]
	flags := t.flags
	switch {
	case start == "(" && t.follows("(?"):
		return t.wrong(t.at, "no group of Java begins like this")
	case start == "(" || name != "":
		if err := t.addCapture(start, name); err != nil {
			return err
		}
	case kind != "":
		if kind == ">" && t.inLookbehind() {
			return t.unsupported(t.at, "an atomic group in a lookbehind")
		}
		t.pushGroup(start, start, start)
	default:
		if err := t.setFlags(&flags, m[3], m[4]); err != nil {
			return err
		}
		if end == ":" {
			t.pushGroup(start, "", "(?:")
		} else {
			t.write(len(start), "", nothing)
		}
	}
	t.flags = flags
	return nil
}

// addCapture starts a capturing group. Unlike other engines, Java does not reset a group inside a lookaround
// or an atomic group when it backtracks over that.
func (t *translator) addCapture(start, name string) error {
	if kind := t.within("(?=", "(?!", "(?<=", "(?<!", "(?>"); kind != "" {
		return t.wrong(t.at, "a capturing group within %s is not supported; write (?:…)", kind)
	}
	if groupNamed(t.groups, name) > 0 {
		return t.wrong(t.at, "there are two groups <%s>", name)
	}
	t.pushGroup(start, "", "(")
	t.open[len(t.open)-1].captures = true
	t.groups = append(t.groups, capture{name: name})
	return nil
}

// groupNamed returns the number of the group with this name, or -1 if there is none.
func groupNamed(groups []capture, name string) int {
	return slices.IndexFunc(groups, func(c capture) bool { return c.name == name && name != "" })
}

func (t *translator) pushGroup(start, kind, written string) {
	t.open = append(t.open, group{at: t.at, kind: kind, before: t.flags, start: len(t.out), groups: len(t.groups)})
	t.write(len(start), written, nothing)
}

func (t *translator) setFlags(f *flags, on, off string) error {
	for i, letters := range []string{on, off} {
		for _, letter := range letters {
			switch letter {
			case 'i':
				f.ignoreCase = i == 0
			case 's':
				f.dotAll = i == 0
			default:
				return t.unsupported(t.at, "the flag "+string(letter))
			}
		}
	}
	return nil
}

func (t *translator) closeGroup() error {
	n := len(t.open)
	if n == 0 {
		return t.wrong(t.at, "the parenthesis closes nothing")
	}
	g := t.open[n-1]
	t.flags, t.open = g.before, t.open[:n-1]
	end, kind := ")", composite
	if g.kind == "(?>" {
		end = endAtomic
	}
	if len(t.groups) > g.groups {
		kind = capturing
		t.groups[g.groups].complete = t.groups[g.groups].complete || g.captures
	}
	t.write(1, end, kind)
	t.last.start, t.last.groups = g.start, g.groups
	return nil
}
