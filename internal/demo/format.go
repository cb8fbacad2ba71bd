package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// style colors text for a terminal. Its zero value leaves it as it is.
type style struct{ on bool }

// The SGR parameters of https://www.ecma-international.org/publications-and-standards/standards/ecma-48/.
func (s style) bold(t string) string { return s.sgr("1", t) }
func (s style) dim(t string) string  { return s.sgr("2", t) }
func (s style) red(t string) string  { return s.sgr("31", t) }
func (s style) good(t string) string { return s.sgr("32", t) }
func (s style) name(t string) string { return s.sgr("36", t) }

func (s style) sgr(parameter, t string) string {
	if !s.on || t == "" {
		return t
	}
	return "\x1b[" + parameter + "m" + t + "\x1b[0m"
}

// zero colors a number that has to be 0.
func (s style) zero(n int, t string) string {
	if n == 0 {
		return s.good(t)
	}
	return s.red(t)
}

// number prints n with thousands separated.
func number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span prints a duration the way people say it.
func span(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", ms)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// size prints a number of bytes.
func size(n int64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n = (n + 500) / 1000
	}
	return fmt.Sprintf("%s GB", number(int(n)))
}

// left and right bring t to exactly width columns.
func left(t string, width int) string  { return cut(t, width) + pad(t, width) }
func right(t string, width int) string { return pad(t, width) + cut(t, width) }

func pad(t string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(t)))
}

func cut(t string, width int) string {
	if runes := []rune(t); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return t
}

// bar draws the share done of a whole.
func bar(done float64, width int) string {
	full := min(width, max(0, int(done*float64(width))))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
