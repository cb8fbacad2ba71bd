package rig

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Process is a running process of the relay's binary.
type Process struct {
	Cmd    *exec.Cmd
	Stderr *Log
	Done   chan struct{} // closed when the process has exited
}

// Start starts the relay's binary with args and kills it when the test ends.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return StartProgram(t, Binary(t), args...)
}

// StartProgram is like [Start], for the program at path, such as a shell that replaces itself with the
// relay's binary (exec).
func StartProgram(t *testing.T, path string, args ...string) *Process {
	t.Helper()
	r, err := Launch(path, args...)
	Must(t, err)
	t.Cleanup(func() {
		_ = r.Cmd.Process.Kill()
		<-r.Done
		if t.Failed() {
			t.Logf("%s %s\n%s", filepath.Base(r.Cmd.Path), strings.Join(args, " "), Tail(r.Stderr.String(), 40))
		}
	})
	return r
}

// Launch starts the program at path. The caller must stop the process.
func Launch(path string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(context.Background(), path, args...) //nolint:gosec // a program of the test
	r := &Process{Cmd: cmd, Stderr: &Log{}, Done: make(chan struct{})}
	r.Cmd.Stderr = r.Stderr
	r.Cmd.Stdout = r.Stderr
	r.Cmd.Env = append(os.Environ(), "OUTBOX_CDC_LOG_FORMAT=text", "OUTBOX_CDC_ADMIN_LISTEN=127.0.0.1:0")
	if err := r.Cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // callers that stop the process wait for Done
		defer close(r.Done)
		_ = r.Cmd.Wait()
	}()
	return r, nil
}

// Signal sends a signal to the process. It does nothing if the process has exited.
func (r *Process) Signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := r.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Kill kills the process and waits until it has exited.
func (r *Process) Kill(t *testing.T) {
	t.Helper()
	r.Signal(t, syscall.SIGKILL)
	<-r.Done
}

// Ended reports whether the process has exited.
func (r *Process) Ended() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

// Exit waits until the process has exited and returns its exit code.
func (r *Process) Exit(t *testing.T) int {
	t.Helper()
	wait.Receive(t, "the process to exit", r.Done)
	return r.Cmd.ProcessState.ExitCode()
}

// Terminate sends SIGTERM and waits until the process has exited. It fails the test unless the exit code
// is 0.
func (r *Process) Terminate(t *testing.T) {
	t.Helper()
	r.Signal(t, syscall.SIGTERM)
	if code := r.Exit(t); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// Command runs a command of the relay's binary and returns its output and exit code.
func Command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), Binary(t), args...).CombinedOutput() //nolint:gosec // the binary under test
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// Fails waits until the process has exited. It fails the test unless the exit code is code and the output
// contains all of says.
func (r *Process) Fails(t *testing.T, code int, says ...string) {
	t.Helper()
	got := r.Exit(t)
	out := r.Stderr.String()
	if got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, Tail(out, 20))
	}
	for _, want := range says {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, Tail(out, 20))
		}
	}
}
