package demo

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// zero colors text for n, which should be 0.
func zero(s terminal.Style, n int, t string) string {
	if n == 0 {
		return s.Good(t)
	}
	return s.Red(t)
}

// formatDuration formats a duration.
func formatDuration(d time.Duration) string {
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

// size formats a number of bytes.
func size(n int64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n = (n + 500) / 1000
	}
	return fmt.Sprintf("%s GB", terminal.Number(int(n)))
}
