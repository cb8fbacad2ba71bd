package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// logInterval is the time between log lines about progress if there is no terminal.
const logInterval = 10 * time.Second

// A Progress shows the progress of a long operation: a bar on a terminal, otherwise a log line every 10 s. It may be
// used by one goroutine at a time.
type Progress struct {
	w    io.Writer
	log  *slog.Logger
	live bool

	Phase string // the operation, for instance replay

	doing    string // of the last call of Show
	done     int
	started  time.Time
	reported time.Time
}

// NewProgress returns a Progress that writes to w, which is standard error.
func NewProgress(w io.Writer, environ []string, log *slog.Logger) *Progress {
	return &Progress{w: w, log: log, live: IsTerminal(w) && Getenv(environ, "TERM") != "dumb", reported: time.Now()}
}

// Show shows that done of total units are complete.
func (p *Progress) Show(ctx context.Context, doing string, done, total int) {
	now := time.Now()
	if doing != p.doing || done < p.done { // the next step
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

// barWidth is the width of a bar in columns.
const barWidth = 24

func (p *Progress) draw(doing string, share, rate float64, left int) {
	full := min(int(share*barWidth), barWidth)
	line := fmt.Sprintf("  %s%s %3.0f %%  %s, %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), share*100, p.Phase, doing)
	if rate > 0 && left > 0 {
		line += fmt.Sprintf("  %s/s, %.0f s left", thousands(rate), float64(left)/rate)
	}
	_, _ = io.WriteString(p.w, "\r\x1b[K"+line) // an error must not stop the operation
}

// End erases the bar.
func (p *Progress) End() {
	if p.live {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// thousands formats a number: 950, 12.3 k, 151 k.
func thousands(n float64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%.0f", n)
	case n < 100_000:
		return fmt.Sprintf("%.1f k", n/1000)
	}
	return fmt.Sprintf("%.0f k", n/1000)
}
