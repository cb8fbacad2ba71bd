//go:build unix

package serverproc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// ownerVariable is the environment variable that makes the test binary start a
// server and wait. The test then kills that process.
const ownerVariable = "SERVERPROC_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

func own() {
	dir, err := serverproc.MakeDir("", "serverproc-test-")
	if err != nil {
		panic(err)
	}
	p, err := dir.Start(shell("exec sleep 1000"), syscall.SIGQUIT)
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID(), dir.Path())
	select {}
}

// shell returns a command without a context, because the tests check how the process ends.
func shell(script string) *exec.Cmd {
	return exec.Command("/bin/sh", "-c", script) //nolint:noctx // see above
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestNothingOutlivesTheOwner(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			owner := exec.CommandContext(t.Context(), os.Args[0])
			owner.Env = append(os.Environ(), ownerVariable+"=1")
			out, err := owner.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pidText, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			pid, err := strconv.Atoi(pidText)
			if err != nil || !exists(path) {
				t.Fatalf("the owner printed %q", line)
			}
			owner.Process.Signal(sig)
			owner.Wait()
			wait.For(t, "the process ends", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
			wait.For(t, "the directory goes", func() bool { return !exists(path) })
		})
	}
}

func TestDirAndProcess(t *testing.T) {
	dir, err := serverproc.MakeDir(t.TempDir(), "d-")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		script string
		sig    syscall.Signal
		ok     bool
	}{{"exit 0", 0, true}, {"exit 3", 0, false}, {"exec sleep 1000", syscall.SIGTERM, false}} {
		p, err := dir.Start(shell(c.script), syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if c.sig != 0 {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.ErrUnsupported)
			if err := p.Wait(ctx); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: Wait = %v", c.script, err)
			}
			if err := p.Signal(c.sig); err != nil {
				t.Error(err)
			}
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("%s: Wait = %v", c.script, err)
		}
		if err := p.Err(); (err == nil) != c.ok {
			t.Errorf("%s: Err = %v", c.script, err)
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: Signal after the end = %v", c.script, err)
		}
	}
	for range 2 {
		if err := dir.Remove(); err != nil || exists(dir.Path()) {
			t.Errorf("Remove: %v, exists %t", err, exists(dir.Path()))
		}
	}
	if _, err := dir.Start(shell("exec sleep 1000"), syscall.SIGKILL); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Start after Remove: %v", err)
	}
}

// End also ends a process that is paused, by the signal that it was sent.
func TestEndOfAPausedProcess(t *testing.T) {
	dir, err := serverproc.MakeDir(t.TempDir(), "d-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Remove() }()
	ready := filepath.Join(dir.Path(), "ready")
	p, err := dir.Start(shell("trap 'exit 7' TERM; touch "+ready+"; while :; do sleep 0.01; done"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	for !exists(ready) && p.Running() {
		time.Sleep(time.Millisecond)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := p.End(t.Context(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.Err()); !ok || exit.ExitCode() != 7 {
		t.Errorf("the process ended with %v", p.Err())
	}
}

// While no server listens on a reserved port, a client that dials it repeatedly is
// never connected to itself.
func TestPortStaysOurs(t *testing.T) {
	port, err := serverproc.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	var dialer net.Dialer
	for range 3 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c, err := dialer.DialContext(t.Context(), "tcp4", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
		for range 200 {
			if c, err := dialer.DialContext(t.Context(), "tcp4", port.Addr()); err == nil {
				t.Fatalf("connected from %s although no server listens", c.LocalAddr())
			}
		}
	}
}

func TestFillMakesOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	broken := errors.New("broken")
	if err := serverproc.Fill(t.Context(), dir, func(string) error { return broken }); !errors.Is(err, broken) || exists(dir) {
		t.Fatalf("a Fill that fails: %v, exists %t", err, exists(dir))
	}
	made := 0
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			err := serverproc.Fill(t.Context(), dir, func(staging string) error {
				made++
				return os.WriteFile(filepath.Join(staging, "f"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != 1 || !exists(filepath.Join(dir, "f")) {
		t.Errorf("produce was called %d times, file exists %t", made, exists(filepath.Join(dir, "f")))
	}
}

func TestFillWaitsUntilCanceled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	err := serverproc.Fill(t.Context(), dir, func(string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := serverproc.Fill(ctx, dir, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second Fill: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	tail := serverproc.NewTail(nil)
	for i := range 10_000 {
		fmt.Fprintf(tail, "line %d\n", i)
	}
	if s := tail.String(); !strings.HasSuffix(s, "line 9999\n") || len(s) > 8<<10 {
		t.Errorf("%d bytes, ending %q", len(s), s[len(s)-20:])
	}
}
