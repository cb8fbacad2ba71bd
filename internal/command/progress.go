package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// logInterval is how often long work says where it is when there is no terminal to draw on.
const logInterval = 10 * time.Second

// A Progress shows how far long work has come: as a bar on a terminal, elsewhere as a log line now and
// then. It is for one goroutine.
type Progress struct {
	w    io.Writer
	log  *slog.Logger
	live bool

	Phase string // what the work is part of

	doing    string // what Show was told last, and since when
	done     int
	started  time.Time
	reported time.Time
}

// NewProgress returns a Progress on w, which is standard error.
func NewProgress(w io.Writer, environ []string, log *slog.Logger) *Progress {
	return &Progress{w: w, log: log, live: IsTerminal(w) && Getenv(environ, "TERM") != "dumb", reported: time.Now()}
}

// Show says that of doing so much is done.
func (p *Progress) Show(ctx context.Context, doing string, done, total int) {
	now := time.Now()
	if doing != p.doing || done < p.done { // the next one
		p.doing, p.started = doing, now
	}
	p.done = done
	rate := float64(done) / max(now.Sub(p.started).Seconds(), 0.001)
	if p.live {
		p.draw(doing, float64(done)/float64(max(total, 1)), rate, total-done)
		return
	}
	if now.Sub(p.reported) >= logInterval {
		p.reported = now
		p.log.InfoContext(ctx, "progress", slog.String("phase", p.Phase), slog.String("doing", doing),
			slog.Int("done", done), slog.Int("total", total), slog.Int("per_second", int(rate)))
	}
}

// barWidth is how many columns a bar has.
const barWidth = 24

func (p *Progress) draw(doing string, share, rate float64, left int) {
	full := min(int(share*barWidth), barWidth)
	line := fmt.Sprintf("  %s%s %3.0f %%  %s, %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), share*100, p.Phase, doing)
	if rate > 0 && left > 0 {
		line += fmt.Sprintf("  %s/s, %.0f s left", thousands(rate), float64(left)/rate)
	}
	_, _ = io.WriteString(p.w, "\r\x1b[K"+line) // without a terminal any more, the work goes on
}

// End takes the bar away.
func (p *Progress) End() {
	if p.live {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// thousands prints a number to three digits or more: 950, 12.3 k, 151 k.
func thousands(n float64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%.0f", n)
	case n < 100_000:
		return fmt.Sprintf("%.1f k", n/1000)
	}
	return fmt.Sprintf("%.0f k", n/1000)
}
