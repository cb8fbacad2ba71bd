package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// The minimum size of a terminal for the panel.
const (
	panelWidth  = 80
	panelHeight = 24
)

// A screen is the output of the demo. On a terminal the last lines are a block that is redrawn; otherwise the output is
// lines only. Its methods may be called from any goroutine.
type screen struct {
	style terminal.Style

	mu    sync.Mutex
	w     io.Writer
	live  bool
	drawn int // lines of the block on the terminal
}

func newScreen(w io.Writer, opts Options) *screen {
	s := &screen{w: w}
	f, ok := w.(*os.File)
	if !ok || opts.Term == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.style.On = !opts.NoColor
	width, height, err := term.GetSize(int(f.Fd()))
	s.live = err == nil && width >= panelWidth && height >= panelHeight
	return s
}

// say adds permanent lines.
func (s *screen) say(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(lines, false)
}

// draw replaces the block at the end. Without a terminal it does nothing.
func (s *screen) draw(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.write(lines, true)
	}
}

// close restores the terminal.
func (s *screen) close() { s.say() }

// write replaces the block with lines, in a single write so that nothing flickers. The cursor is hidden while there is a
// block.
func (s *screen) write(lines []string, block bool) {
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", s.drawn)
	}
	clearLine := ""
	if s.live {
		clearLine = "\x1b[K"
	}
	for _, line := range lines {
		b.WriteString(line + clearLine + "\n")
	}
	if s.drawn > 0 {
		b.WriteString("\x1b[J")
	}
	switch {
	case block && s.drawn == 0:
		b.WriteString("\x1b[?25l")
	case !block && s.drawn > 0:
		b.WriteString("\x1b[?25h")
	}
	s.drawn = 0
	if block {
		s.drawn = len(lines)
	}
	_, _ = io.WriteString(s.w, b.String()) // a closed pipe must not prevent the cleanup
}

const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

// sayInterval is the time between lines about the progress of a long step without a terminal.
const sayInterval = 10 * time.Second

// step runs f and prints a line with what, the details that f returns, and the time. While f runs, it shows the details
// that f reports. f must report from one goroutine.
func (s *screen) step(what string, f func(report func(details string)) (string, error)) error {
	start := time.Now()
	var mu sync.Mutex
	details := ""
	redraw := func() {
		mu.Lock()
		defer mu.Unlock()
		frames := []rune(spinner)
		frame := frames[int(time.Since(start)/(80*time.Millisecond))%len(frames)]
		s.draw(fmt.Sprintf("  %s %s %s", s.style.Name(string(frame)), terminal.Left(what, stepWidth), details))
	}
	stop := every(80*time.Millisecond, redraw)
	var said time.Time
	result, err := f(func(d string) {
		mu.Lock()
		details = d
		mu.Unlock()
		if !s.live && time.Since(said) >= sayInterval {
			said = time.Now()
			s.say("    " + terminal.Left(what, stepWidth) + " " + d)
		}
	})
	stop()
	if err != nil {
		s.say(fmt.Sprintf("  %s %s failed", s.style.Red("✘"), terminal.Left(what, stepWidth)))
		return err
	}
	s.say(fmt.Sprintf("  %s %s %s %s", s.style.Good("✔"), terminal.Left(what, stepWidth), terminal.Left(result, detailWidth),
		s.style.Dim(terminal.Right(formatDuration(time.Since(start)), durationWidth))))
	return nil
}

// Columns of a step's line: 4 + 14 + 1 + 51 + 1 + 8 = 79.
const (
	stepWidth     = 14
	detailWidth   = 51
	durationWidth = 8
)

// every calls f periodically until stop is called. When stop returns, f is not running.
func every(interval time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
