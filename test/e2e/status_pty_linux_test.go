package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A terminal is what the binary runs on, seen from the other side: https://man7.org/linux/man-pages/man7/pty.7.html
type pty struct {
	*rig.Process
	other  *os.File
	screen *rig.Log      // everything that was ever written to it
	read   chan struct{} // closed when the process has ended and all of that is read
}

// startOn runs the binary on a terminal of so many columns and rows.
func startOn(t *testing.T, columns, rows uint16, args ...string) *pty {
	t.Helper()
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	rig.Must(t, err)
	rig.Must(t, unix.IoctlSetPointerInt(int(other.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(other.Fd()), unix.TIOCGPTN)
	rig.Must(t, err)
	p := &pty{other: other, screen: &rig.Log{}, read: make(chan struct{})}
	p.resize(t, columns, rows)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	rig.Must(t, err)
	defer tty.Close()

	cmd := exec.CommandContext(t.Context(), rig.Binary(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = []string{"TERM=xterm"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	rig.Must(t, cmd.Start())
	p.Process = &rig.Process{Cmd: cmd, Stderr: p.screen, Done: make(chan struct{})}
	go func() { // ends when nobody has the terminal open any more
		defer close(p.read)
		buf := make([]byte, 4096)
		for {
			n, err := other.Read(buf)
			_, _ = p.screen.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(p.Done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.Done
		<-p.read
		_ = other.Close()
	})
	return p
}

func (p *pty) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	rig.Must(t, unix.IoctlSetWinsize(int(p.other.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
}

func (p *pty) press(t *testing.T, key string) {
	t.Helper()
	_, err := p.other.WriteString(key)
	rig.Must(t, err)
}

var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// shown returns the lines of the last frame that is complete, without colors; nil if there is none.
func (p *pty) shown() []string {
	const home, end = "\x1b[H", "\x1b[K\x1b[J"
	text := p.screen.String()
	last := strings.LastIndex(text, end)
	if last < 0 {
		return nil
	}
	first := strings.LastIndex(text[:last], home)
	frame := strings.ReplaceAll(text[first+len(home):last], "\x1b[K", "")
	return strings.Split(colors.ReplaceAllString(frame, ""), "\r\n")
}

// shows waits until a frame has all of want, and returns its lines.
func (p *pty) shows(t *testing.T, want ...string) []string {
	t.Helper()
	var lines []string
	wait.For(t, "the terminal to show "+strings.Join(want, ", "), func() bool {
		lines = p.shown()
		text := strings.Join(lines, "\n")
		for _, w := range want {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
	return lines
}

// On a terminal --watch draws in place, in whatever room there is, what happens while it happens;
// and it gives the terminal back as it was.
func TestStatusWatchedOnATerminal(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	p := startOn(t, 100, 40, "status", "-c", r.Config, "--admin", process.AdminAt(t), "--watch")
	before, err := unix.IoctlGetTermios(int(p.other.Fd()), unix.TCGETS)
	rig.Must(t, err)
	lines := p.shows(t, "● Healthy", "Slot "+r.Slot, "WAL sender", "q to quit")
	if len(lines) != 40 || !strings.HasPrefix(lines[0], r.Slot) {
		t.Errorf("%d lines of 40, the first is %q", len(lines), lines[0])
	}
	p.resize(t, 50, 20)
	wait.For(t, "it to fit", func() bool { lines = p.shown(); return len(lines) == 20 })
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 49 {
			t.Errorf("a line is too wide: %q", line)
		}
	}
	p.resize(t, 120, 50)
	r.Load.Run(t.Context(), t, 100)
	p.shows(t, r.Topic)
	p.press(t, "xq")
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	<-p.read
	after, err := unix.IoctlGetTermios(int(p.other.Fd()), unix.TCGETS)
	rig.Must(t, err)
	if after.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != unix.ICANON|unix.ECHO|unix.ISIG || after.Oflag != before.Oflag|unix.OPOST {
		t.Errorf("the terminal was left as %+v", after)
	}
	_, left, given := strings.Cut(p.screen.String(), "\x1b[?25h\x1b[?1049l")
	if !given || !strings.Contains(left, "Healthy") {
		t.Errorf("at the end there is %q", left)
	}

	p = startOn(t, 100, 40, "status", "-c", r.Config, "--admin", process.AdminAt(t), "--watch")
	p.shows(t, "● Healthy")
	process.Terminate(t)
	p.shows(t, "✘ No relay is running", "docs/runbook.md#exit-codes")
	p.press(t, "\x03")
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}
