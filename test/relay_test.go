package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A relayProcess is the built binary at work, as its user would run it.
type relayProcess struct {
	cmd    *exec.Cmd
	stderr *syncBuffer
	done   chan struct{} // closed when the process has ended
}

// syncBuffer collects what a process writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs the binary with args. It is killed at the end of the test if it still runs.
func start(t *testing.T, args ...string) *relayProcess {
	t.Helper()
	return startProgram(t, binary(t), args...)
}

// startProgram is start for what becomes the binary at last, such as a shell.
func startProgram(t *testing.T, path string, args ...string) *relayProcess {
	t.Helper()
	r, err := launch(path, args...)
	must(t, err)
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		if t.Failed() {
			t.Logf("%s %s\n%s", filepath.Base(r.cmd.Path), strings.Join(args, " "), tail(r.stderr.String(), 40))
		}
	})
	return r
}

// launch runs the binary at path; the caller ends it.
func launch(path string, args ...string) (*relayProcess, error) {
	r := &relayProcess{cmd: exec.CommandContext(context.Background(), path, args...), stderr: &syncBuffer{}, done: make(chan struct{})}
	r.cmd.Stderr = r.stderr
	r.cmd.Stdout = r.stderr
	r.cmd.Env = append(os.Environ(), "OUTBOX_CDC_LOG_FORMAT=text", "OUTBOX_CDC_ADMIN_LISTEN=127.0.0.1:0")
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // whoever ends the process waits for done
		defer close(r.done)
		_ = r.cmd.Wait()
	}()
	return r, nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (r *relayProcess) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

func (r *relayProcess) kill(t *testing.T) {
	t.Helper()
	r.signal(t, syscall.SIGKILL)
	<-r.done
}

// ended reports whether the process has ended.
func (r *relayProcess) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// exit waits for the end of the process and returns its exit code.
func (r *relayProcess) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(within):
		t.Fatalf("still running after %v", within)
	}
	return r.cmd.ProcessState.ExitCode()
}

// terminate sends SIGTERM and demands a clean end.
func (r *relayProcess) terminate(t *testing.T) {
	t.Helper()
	r.signal(t, syscall.SIGTERM)
	if code := r.exit(t, 30*time.Second); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// memory is what the kernel knows of a process' resident memory, in MB.
type memory struct{ now, peak, anonymous int }

// memory reads the running process' resident memory. (The peak that rusage tells at the
// end is no use: it counts the memory of the parent from before the exec.)
func (r *relayProcess) memory(t *testing.T) memory {
	t.Helper()
	m, err := r.resident()
	if err != nil {
		t.Fatalf("resident memory is read from /proc: %v", err)
	}
	return m
}

func (r *relayProcess) resident() (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return m, err
	}
	fields := map[string]*int{"VmRSS:": &m.now, "VmHWM:": &m.peak, "RssAnon:": &m.anonymous}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && fields[f[0]] != nil {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				return m, err
			}
			*fields[f[0]] = kb / 1024
		}
	}
	return m, nil
}

// logged waits until the relay has written text.
func (r *relayProcess) logged(t *testing.T, text string) {
	t.Helper()
	waitFor(t, 30*time.Second, "the relay to log "+strconv.Quote(text), func() bool {
		return strings.Contains(r.stderr.String(), text)
	})
}

// command runs a verb to its end and returns its output and exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), binary(t), args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// waitFor polls cond until it holds.
func waitFor(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fails waits for the end of the process and demands the exit code, and that it says all of
// says.
func (r *relayProcess) fails(t *testing.T, code int, says ...string) {
	t.Helper()
	got := r.exit(t, 20*time.Second)
	out := r.stderr.String()
	if got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, tail(out, 20))
	}
	for _, want := range says {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said:\n%s", want, tail(out, 20))
		}
	}
}
