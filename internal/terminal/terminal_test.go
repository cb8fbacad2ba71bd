package terminal

import (
	"math"
	"slices"
	"testing"
)

func TestText(t *testing.T) {
	for in, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1: "-1", -123: "-123", -1234: "-1,234"} {
		if got := Number(in); got != want {
			t.Errorf("Number(%d) = %s, want %s", in, got, want)
		}
	}
	if got := Cut("é€é€é", 4); got != "é€é…" {
		t.Errorf("Cut = %q", got)
	}
	if got := Left("é€", 4) + Right("é€", 4) + Left("abc", 2); got != "é€    é€a…" {
		t.Errorf("Left and Right = %q", got)
	}
	if got := Bar(0.5, 4) + Bar(-1, 2) + Bar(2, 2); got != "██░░░░██" {
		t.Errorf("bars = %q", got)
	}
}

func TestStyle(t *testing.T) {
	if got := (Style{}).Red("x"); got != "x" {
		t.Errorf("without colors: %q", got)
	}
	if got := (Style{On: true}).Red("x") + (Style{On: true}).Bold(""); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("with colors: %q", got)
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 5, nil},
		{"one  two\nthree", 8, []string{"one two", "three"}},
		{"abcdefgh ij", 5, []string{"abcde", "fgh", "ij"}},
		{"é€é €é", 3, []string{"é€é", "€é"}},
	} {
		if got := Wrap(test.text, test.width); !slices.Equal(got, test.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func TestSparkline(t *testing.T) {
	if got := Sparkline([]float64{math.NaN(), 0, 5, 10, -1}); got != " ▁▅█▁" {
		t.Errorf("Sparkline = %q", got)
	}
	if got := Sparkline([]float64{0, math.NaN()}); got != "▁ " {
		t.Errorf("Sparkline of nothing = %q", got)
	}
}
