// Package terminal is what views for a terminal are put together from: text of an exact width, bars,
// colors. It writes nothing. Widths are counted in characters, before text is colored.
package terminal

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Style colors text for a terminal. Its zero value leaves it as it is.
type Style struct{ On bool }

// Bold returns t in bold letters.
func (s Style) Bold(t string) string { return s.sgr("1", t) }

// Dim returns t in letters that stand back.
func (s Style) Dim(t string) string { return s.sgr("2", t) }

// Red returns t as what is wrong.
func (s Style) Red(t string) string { return s.sgr("31", t) }

// Good returns t as what is well.
func (s Style) Good(t string) string { return s.sgr("32", t) }

// Warn returns t as what may go wrong.
func (s Style) Warn(t string) string { return s.sgr("33", t) }

// Name returns t as the name of something, or a drawing.
func (s Style) Name(t string) string { return s.sgr("36", t) }

// sgr takes the parameters of https://www.ecma-international.org/publications-and-standards/standards/ecma-48/.
func (s Style) sgr(parameter, t string) string {
	if !s.On || t == "" {
		return t
	}
	return "\x1b[" + parameter + "m" + t + "\x1b[0m"
}

// Left brings t to exactly width characters, at the left of them.
func Left(t string, width int) string { return Cut(t, width) + pad(t, width) }

// Right brings t to exactly width characters, at the right of them.
func Right(t string, width int) string { return pad(t, width) + Cut(t, width) }

func pad(t string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(t)))
}

// Cut returns t with at most width characters, at least 1: what is longer ends in an ellipsis.
func Cut(t string, width int) string {
	if runes := []rune(t); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return t
}

// Bar draws the share done of a whole.
func Bar(done float64, width int) string {
	full := min(width, max(0, int(done*float64(width))))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Number prints n with thousands separated.
func Number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Wrap breaks t into lines of at most width characters, between words, and within those that are
// longer. Blanks and breaks of t itself are one blank.
func Wrap(t string, width int) []string {
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(t) {
		letters := []rune(word)
		if line != "" && used+1+len(letters) > width {
			lines, line, used = append(lines, line), "", 0
		}
		for len(letters) > width {
			lines, letters = append(lines, string(letters[:width])), letters[width:]
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+string(letters), used+len(letters)
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Sparkline draws numbers from 0 on, each in one character, against the greatest of them. What is
// not a number is a blank, and 0 the lowest line.
func Sparkline(numbers []float64) string {
	greatest := 0.0
	for _, n := range numbers {
		if !math.IsNaN(n) {
			greatest = max(greatest, n)
		}
	}
	heights := []rune("▁▂▃▄▅▆▇█")
	line := make([]rune, len(numbers))
	for i, n := range numbers {
		switch {
		case math.IsNaN(n):
			line[i] = ' '
		case greatest == 0:
			line[i] = heights[0]
		default:
			line[i] = heights[int(max(0, n)/greatest*float64(len(heights)-1)+0.5)]
		}
	}
	return string(line)
}
