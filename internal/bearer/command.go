package bearer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A Command is a program that prints a password or a token, such as the tool of a cloud provider.
type Command struct {
	Args     []string      // the program and its arguments, without a shell
	Timeout  time.Duration // the program is killed after that
	Lifetime time.Duration // how long what it prints is valid
}

const (
	maxOutput  = 64 << 10 // bytes of a password
	maxMessage = 500      // bytes of standard error that an error repeats

	// afterExit is how long a child process of the program may keep its output open.
	afterExit = time.Second
)

// Token runs the program and returns the line that it prints. The program has the environment, the directory and the
// user of this process, and no input. An error contains the end of what the program writes to standard error, and
// nothing of what it prints.
func (c Command) Token(ctx context.Context) (string, time.Time, error) {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	began := time.Now()
	var out, message tail
	cmd := exec.CommandContext(limited, c.Args[0], c.Args[1:]...) //nolint:gosec // which program is the operator's choice
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &message, afterExit
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", time.Time{}, context.Cause(ctx)
	case limited.Err() != nil:
		return "", time.Time{}, fmt.Errorf("%s did not end within %s%s", c.name(), c.Timeout, message.explain())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", time.Time{}, fmt.Errorf("%s: %w%s", c.name(), reason(err), message.explain())
	}
	token := strings.TrimRight(out.buf.String(), "\r\n")
	switch {
	case token == "":
		return "", time.Time{}, fmt.Errorf("%s printed nothing%s", c.name(), message.explain())
	case out.cut || strings.ContainsAny(token, "\r\n\x00"):
		return "", time.Time{}, fmt.Errorf("%s must print the password alone, on one line of at most %d bytes", c.name(), maxOutput)
	}
	return token, began.Add(c.Lifetime), nil
}

// name returns the program without its arguments, which may be secrets.
func (c Command) name() string { return strconv.Quote(c.Args[0]) }

// reason returns why the program did not run or failed, without its name.
func reason(err error) error {
	if failed, ok := errors.AsType[*exec.Error](err); ok {
		return failed.Err
	}
	return err
}

// A tail has the last bytes that are written to it.
type tail struct {
	buf bytes.Buffer // not embedded: its ReadFrom would read everything
	cut bool         // some of the first bytes are lost
}

// Write implements io.Writer. It never fails, so that the program does not.
func (t *tail) Write(p []byte) (int, error) {
	_, _ = t.buf.Write(p)
	if extra := t.buf.Len() - maxOutput; extra > 0 {
		t.buf.Next(extra)
		t.cut = true
	}
	return len(p), nil
}

// explain returns the end of standard error as the end of a sentence, on one line and without control characters.
func (t *tail) explain() string {
	text := strings.TrimSpace(t.buf.String())
	if text == "" {
		return ""
	}
	if extra := len(text) - maxMessage; extra > 0 {
		text = "…" + strings.ToValidUTF8(text[extra:], "")
	}
	text = strings.Join(strings.Fields(text), " ")
	return ": " + strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
