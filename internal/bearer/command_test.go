package bearer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
)

// shell returns a command that runs script.
func shell(script string, args ...string) bearer.Command {
	return bearer.Command{Args: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Timeout: 10 * time.Second, Lifetime: time.Hour}
}

func TestCommand(t *testing.T) {
	t.Setenv("TOKEN_PART", "from the environment")
	for name, tt := range map[string]struct {
		run  bearer.Command
		want string // empty: an error
		says string // part of the error
	}{
		"a token":                  {shell(`echo abc`), "abc", ""},
		"Windows line end":         {shell(`printf 'abc\r\n'`), "abc", ""},
		"no line end":              {shell(`printf abc`), "abc", ""},
		"spaces belong to it":      {shell(`echo ' a b '`), " a b ", ""},
		"environment":              {shell(`echo "$TOKEN_PART"`), "from the environment", ""},
		"arguments as they are":    {shell(`echo "$1"`, "a 'b' $HOME *"), "a 'b' $HOME *", ""},
		"warnings beside it":       {shell(`echo careful >&2; echo abc`), "abc", ""},
		"no input":                 {shell(`cat; echo abc`), "abc", ""},
		"a child goes on":          {shell(`sleep 60 >&- 2>&- & echo abc`), "abc", ""},
		"a child keeps the output": {shell(`sleep 5 & echo abc`), "abc", ""},
		"it fails":                 {shell(`echo ` + canary + `; printf 'not logged\tin:\033[1m run login\n' >&2; exit 3`), "", `"/bin/sh": exit status 3: not logged in:?[1m run login`},
		"it is killed":             {shell(`kill -9 $$`), "", "signal: killed"},
		"it prints nothing":        {shell(`echo 'no account' >&2`), "", `"/bin/sh" printed nothing: no account`},
		"only a line end":          {shell(`echo`), "", "printed nothing"},
		"two lines":                {shell(`echo ` + canary + `; echo ` + canary), "", "on one line"},
		"too much":                 {shell(`head -c 100000 /dev/zero | tr '\0' x`), "", "at most 65536 bytes"},
		"much to say":              {shell(`seq 1 100000 >&2; exit 1`), "", "99999 100000"},
		"not installed":            {bearer.Command{Args: []string{"no-such-tool", canary}, Timeout: time.Second}, "", `"no-such-tool": executable file not found in $PATH`},
		"not executable":           {bearer.Command{Args: []string{"/dev/null"}, Timeout: time.Second}, "", "permission denied"},
		"it hangs":                 {bearer.Command{Args: []string{"/bin/sh", "-c", "echo waiting for a browser >&2; sleep 60"}, Timeout: 200 * time.Millisecond}, "", "did not end within 200ms: waiting for a browser"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			got, expires, err := tt.run.Token(t.Context())
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Fatalf("%.100q, %v, want %q", got, err, tt.want)
			}
			if err == nil {
				if valid := expires.Sub(began); valid < tt.run.Lifetime || valid > tt.run.Lifetime+5*time.Second {
					t.Errorf("valid for %s", valid)
				}
				return
			}
			if text := err.Error(); !strings.Contains(text, tt.says) || strings.Contains(text, canary) || len(text) > 1000 || strings.Contains(text, "\n") {
				t.Errorf("error = %v, want %q", err, tt.says)
			}
		})
	}
}

// TestCommandIsKilled: the program ends with the context of its caller, whose cause is the error.
func TestCommandIsKilled(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	run := shell(`echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 60`, pid)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(pid); err == nil {
				cancel(stopped)
			}
		}
	}()
	if _, _, err := run.Token(ctx); !errors.Is(err, stopped) {
		t.Errorf("error = %v", err)
	}
}

// TestForget: a password that a server has rejected is not used again.
func TestForget(t *testing.T) {
	asked := 0
	m := bearer.NewMemory(func(context.Context) (string, time.Time, error) {
		asked++
		return strings.Repeat("x", asked), time.Time{}, nil
	})
	for i, want := range []string{"x", "x", "xx"} {
		if i == 2 {
			m.Forget()
		}
		if got, err := m.Get(t.Context()); got != want || err != nil {
			t.Errorf("%d: %q, %v, want %q", i, got, err, want)
		}
	}
}
