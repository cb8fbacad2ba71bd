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

// watchInterval is how often both sides are asked.
const watchInterval = time.Second

// A statusWatch prints what an asker tells.
type statusWatch struct {
	app   *app
	asker *status.Asker
	json  bool
	last  *status.Report // that was drawn
}

// size returns how many characters and lines standard output shows at once; where it is no terminal,
// what reads well.
func (a *app) size() (width, height int) {
	if f, ok := a.stdout.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 100, 40
}

// onTerminal reports whether there is a terminal to draw on in place.
func (w *statusWatch) onTerminal() bool {
	return !w.json && command.IsTerminal(w.app.stdout) && command.Getenv(w.app.environ, "TERM") != "dumb"
}

// repeat prints a block every interval until ctx ends.
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

// each asks every interval and shows what comes, until ctx ends or show cannot.
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

// Sequences of https://invisible-island.net/xterm/ctlseqs/ctlseqs.html: a screen of its own without a
// cursor, and back to the one before; the upper left corner; and what erases the rest of a line, and of
// the screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// live draws on the terminal until q, Ctrl-C or the end of ctx, and leaves the last block behind.
func (w *statusWatch) live(ctx context.Context) error {
	if err := w.onScreen(ctx); err != nil || w.last == nil {
		return err
	}
	return w.print(w.app.stdout, w.last)
}

// onScreen draws on a screen of its own, and gives the terminal back as it was.
func (w *statusWatch) onScreen(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		before, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer func() { _ = term.Restore(in, before) }()
		go func() { // waits for a key for as long as the process lives
			quitKey(os.Stdin)
			stop()
		}()
	}
	_, _ = io.WriteString(w.app.stdout, enterScreen)
	defer func() { _, _ = io.WriteString(w.app.stdout, leaveScreen) }()
	return w.draw(ctx)
}

// draw draws until ctx ends or nobody can be drawn for.
func (w *statusWatch) draw(ctx context.Context) error {
	return w.each(ctx, func(r *status.Report) error {
		w.last = r
		_, err := io.WriteString(w.app.stdout, w.frame(r))
		return err
	})
}

// frame draws r over what is on the screen, in one piece so that nothing flickers. The last column stays
// free: a character in it may move the cursor on.
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

// quitKey returns when q or Ctrl-C was typed, or nothing can be any more.
func quitKey(in io.Reader) {
	const interrupt = 3 // what Ctrl-C is while the terminal makes no signal of it
	key := make([]byte, 1)
	for {
		if _, err := in.Read(key); err != nil || key[0] == 'q' || key[0] == 'Q' || key[0] == interrupt {
			return
		}
	}
}
