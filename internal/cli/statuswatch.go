package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// watchInterval is the time between two reports.
const watchInterval = time.Second

// A statusWatch prints the reports of an asker.
type statusWatch struct {
	app   *app
	asker *status.Asker
	json  bool
	last  *status.Report // the last one drawn
}

// size returns the columns and rows of the terminal; if standard output is not a terminal, a readable size.
func (a *app) size() (width, height int) {
	if f, ok := a.stdout.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return readableWidth, 40
}

// readableWidth is the longest line that is easy to read, in characters.
const readableWidth = 100

// onTerminal reports whether reports can be drawn in place.
func (w *statusWatch) onTerminal() bool {
	return !w.json && command.IsTerminal(w.app.stdout) && command.Getenv(w.app.environ, "TERM") != "dumb"
}

// repeat prints a report every interval until ctx ends.
func (w *statusWatch) repeat(ctx context.Context) error {
	return w.each(ctx, func(r *status.Report) error {
		if err := w.print(w.app.stdout, r); err != nil {
			return err
		}
		if !w.json {
			fmt.Fprintln(w.app.stdout)
		}
		return nil
	})
}

// each calls show with a report every interval, until ctx ends or show fails.
func (w *statusWatch) each(ctx context.Context, show func(*status.Report) error) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		r := w.asker.Ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := show(r); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Control sequences of https://invisible-island.net/xterm/ctlseqs/ctlseqs.html: the alternate screen without a cursor,
// back to the normal one, the upper left corner, and erasing to the end of the line and of the screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// live draws on the terminal until q, Ctrl-C or the end of ctx, and then prints the last report.
func (w *statusWatch) live(ctx context.Context) error {
	if err := w.onScreen(ctx); err != nil || w.last == nil {
		return err
	}
	return w.print(w.app.stdout, w.last)
}

// onScreen draws on the alternate screen, and restores the terminal.
func (w *statusWatch) onScreen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		before, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer func() { _ = term.Restore(in, before) }()
		go func() { // blocks in a read until the process exits
			quitKey(os.Stdin)
			stop()
		}()
	}
	_, _ = io.WriteString(w.app.stdout, enterScreen)
	defer func() { _, _ = io.WriteString(w.app.stdout, leaveScreen) }()
	return w.draw(ctx)
}

// draw draws reports until ctx ends or writing fails.
func (w *statusWatch) draw(ctx context.Context) error {
	return w.each(ctx, func(r *status.Report) error {
		w.last = r
		_, err := io.WriteString(w.app.stdout, w.frame(r))
		return err
	})
}

// frame returns the text that replaces the screen with r. It is written at once, so that nothing flickers. The last
// column stays free, because a character there may wrap the line.
func (w *statusWatch) frame(r *status.Report) string {
	width, height := w.app.size()
	width, height = max(24, width-1), max(2, height)
	lines := w.view(width, height-1).Lines(r)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, w.style().Dim(terminal.Cut(r.At.Format(time.TimeOnly)+" · q to quit", width)))
	return home + strings.Join(lines, eraseLine+"\r\n") + eraseLine + eraseBelow
}

// quitKey returns when it reads q or Ctrl-C, or at an error.
func quitKey(in io.Reader) {
	const interrupt = 3 // Ctrl-C in raw mode
	key := make([]byte, 1)
	for {
		if _, err := in.Read(key); err != nil || key[0] == 'q' || key[0] == 'Q' || key[0] == interrupt {
			return
		}
	}
}
