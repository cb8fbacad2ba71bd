// Package terminal formats text for a terminal: text of an exact width, numbers, bars and colors. Widths are in
// characters, without color codes.
package terminal

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Style colors text for a terminal. The zero value does not color.
type Style struct{ On bool }

// Bold returns t in bold.
func (s Style) Bold(t string) string { return s.sgr("1", t) }

// Dim returns t in a faint color.
func (s Style) Dim(t string) string { return s.sgr("2", t) }

// Red returns t in the color of errors.
func (s Style) Red(t string) string { return s.sgr("31", t) }

// Good returns t in the color of success.
func (s Style) Good(t string) string { return s.sgr("32", t) }

// Warn returns t in the color of warnings.
func (s Style) Warn(t string) string { return s.sgr("33", t) }

// Name returns t in the color of names and drawings.
func (s Style) Name(t string) string { return s.sgr("36", t) }

// sgr applies a parameter of SGR: https://www.ecma-international.org/publications-and-standards/standards/ecma-48/.
func (s Style) sgr(parameter, t string) string {
	if !s.On || t == "" {
		return t
	}
	return "\x1b[" + parameter + "m" + t + "\x1b[0m"
}

// Left returns t cut or padded to exactly width characters, aligned left.
func Left(t string, width int) string { return Cut(t, width) + pad(t, width) }

// Right returns t cut or padded to exactly width characters, aligned right.
func Right(t string, width int) string { return pad(t, width) + Cut(t, width) }

func pad(t string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(t)))
}

// Cut returns t with at most width characters. A longer text ends with an ellipsis. width must be at least 1.
func Cut(t string, width int) string {
	if runes := []rune(t); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return t
}

// Bar draws a bar for a share between 0 and 1.
func Bar(done float64, width int) string {
	full := min(width, max(0, int(done*float64(width))))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Number formats n with thousands separators.
func Number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Wrap breaks t into lines of at most width characters, between words, and inside words that are longer. It replaces
// white space, including line breaks, with single blanks.
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

// Sparkline draws one character for each number, in proportion to the greatest. NaN is a blank, and 0 the lowest line.
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

// ShellQuote returns s quoted as one word of a shell.
func ShellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
