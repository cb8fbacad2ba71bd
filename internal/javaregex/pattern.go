// Package javaregex matches and replaces text like java.util.regex of Java 17:
// https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/regex/Pattern.html
//
// It translates expressions for regexp2, which has Java's constructs but gives some of them another
// meaning. If it cannot translate an expression, Compile returns a [*syntaxError]. These differences remain:
//
//   - \b knows ASCII words only, as from Java 19 on.
//   - The Unicode version is that of Go.
//   - Java has its own rules for a group that is repeated at least twice and may match nothing, as in
//     (a|){2}, and keeps the captures inside a repeated group when it backtracks over all of it.
package javaregex

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dlclark/regexp2/v2/syntax"
)

// matchTimeout limits one search. An ordinary search takes microseconds.
const matchTimeout = time.Second

// ErrBacktracking says that a search takes more than a second or too much memory.
var ErrBacktracking = errors.New("the regular expression backtracks too much on this text; simplify nested repetitions or make them possessive, such as [^.]++")

// A syntaxError says that a part of an expression or a replacement is invalid or cannot be translated.
type syntaxError struct {
	text   string // the expression or replacement
	offset int    // of the part, in bytes
	reason string
}

// Error names the reason and the position.
func (e *syntaxError) Error() string {
	return fmt.Sprintf("in %q at offset %d: %s", e.text, e.offset, e.reason)
}

// A Pattern is a compiled expression. It may be used from several goroutines.
type Pattern struct {
	first  *regexp2.Regexp // finds the first match
	whole  *regexp2.Regexp // matches a text as a whole
	groups []capture
}

// Compile compiles an expression. The error is a [*syntaxError].
func Compile(expression string) (*Pattern, error) { return compile(expression, flags{}) }

// CompileIgnoreCase is Compile with Java's flag CASE_INSENSITIVE.
func CompileIgnoreCase(expression string) (*Pattern, error) {
	return compile(expression, flags{ignoreCase: true})
}

func compile(expression string, f flags) (*Pattern, error) {
	t := translator{text: expression, flags: f, groups: make([]capture, 1)}
	translated, err := t.translate()
	if err != nil {
		return nil, err
	}
	p := &Pattern{groups: t.groups}
	if p.first, err = regexp2.Compile(translated); err == nil {
		p.whole, err = regexp2.Compile(`\A(?:` + translated + `)\z`)
	}
	if err != nil {
		return nil, t.wrong(0, "%s", reason(err))
	}
	p.first.MatchTimeout, p.whole.MatchTimeout = matchTimeout, matchTimeout
	return p, nil
}

// reason returns the text of an error of regexp2 without the translated expression.
func reason(err error) string {
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		return wrong.Code.String()
	}
	return err.Error()
}

// Matches reports whether the pattern matches all of text. The error is [ErrBacktracking].
func (p *Pattern) Matches(text string) (bool, error) {
	ok, err := p.whole.MatchString(text)
	if err != nil {
		return false, ErrBacktracking // regexp2's error contains the text
	}
	return ok, nil
}

// ReplaceFirst returns text with its first match replaced. The error is [ErrBacktracking].
func (p *Pattern) ReplaceFirst(text string, by Replacement) (string, error) {
	m, err := p.first.FindStringMatch(text)
	if err != nil {
		return "", ErrBacktracking
	}
	if m == nil {
		return text, nil
	}
	from, length := m.ByteRange()
	out := []byte(text[:from])
	for _, piece := range by {
		if piece.group < 0 {
			out = append(out, piece.text...)
		} else {
			out = append(out, m.GroupByNumber(piece.group).String()...)
		}
	}
	return string(append(out, text[from+length:]...)), nil
}
