package main

import (
	"fmt"
	"strconv"
	"time"
)

// size2text writes a payload's size: 200 B, 10 kB.
func size2text(n int) string {
	if n >= 1000 && n%1000 == 0 {
		return strconv.Itoa(n/1000) + " kB"
	}
	return strconv.Itoa(n) + " B"
}

// count2text writes 1234567 as 1,234,567.
func count2text(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// figure writes a number with what can be told of it: three digits.
func figure(x float64) string {
	switch {
	case x >= 100:
		return count2text(int(x + 0.5))
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
