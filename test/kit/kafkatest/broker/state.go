//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A state is the path of a file that names the process of the broker and the
// broker's address: "PID ADDRESS". The address is empty until the broker serves
// requests. The process holds a lock on the file. If nobody holds the lock, the
// process was killed and the content is ignored.
type state string

const (
	pollInterval = 50 * time.Millisecond
	claimTimeout = time.Second // read holds a shared lock for a moment
)

var errUp = errors.New("a broker is up already")

func stateOfUser() (state, error) {
	dir, err := serverproc.CacheDir()
	return state(filepath.Join(dir, "kafka-broker.pid")), err
}

// A claim is held by the process that runs the broker.
type claim struct{ file *os.File }

func (s state) claim(ctx context.Context) (*claim, error) {
	f, err := os.OpenFile(string(s), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, claimTimeout, errUp)
	defer cancel()
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
	c := &claim{f}
	return c, c.publish("")
}

func (c *claim) publish(addr string) error {
	if err := c.file.Truncate(0); err != nil {
		return err
	}
	_, err := c.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+" "+addr+"\n"), 0)
	return err
}

func (c *claim) release() {
	_ = c.file.Truncate(0)
	_ = c.file.Close()
}

// read returns the process that holds the claim, or 0 if none does, and the
// broker's address, which is empty while the broker starts.
func (s state) read() (pid int, addr string, err error) {
	f, err := os.Open(string(s))
	if errors.Is(err, os.ErrNotExist) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return 0, "", nil // no process holds the claim
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return 0, "", err
	}
	text, addr, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, _ = strconv.Atoi(text) // 0 if the file is still empty
	return pid, addr, nil
}

// await reads the state repeatedly until cond returns true, and returns the address.
func (s state) await(ctx context.Context, cond func(pid int, addr string) bool) (string, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		pid, addr, err := s.read()
		if err != nil || cond(pid, addr) {
			return addr, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// up starts a process that runs the broker, in a session of its own, unless a
// broker runs already. It prints the broker's address.
func up(ctx context.Context, s state, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, addr, err := s.read(); err != nil || addr != "" {
		fmt.Fprintln(stdout, addr)
		return err
	}
	log, err := os.Create(string(s) + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "run") //nolint:gosec,noctx // ourselves, to outlive us
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // returns when the child exits, or never
		_ = cmd.Wait() // the log has the error: another broker is up, or this one did not start
		close(ended)
	}()
	addr, err := s.await(ctx, func(pid int, addr string) bool {
		select {
		case <-ended:
			return pid == 0 || addr != ""
		default:
			return addr != ""
		}
	})
	if err == nil && addr == "" {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the broker did not start\n%s", text)
	}
	if err != nil {
		return fmt.Errorf("wait for the broker: %w", err)
	}
	fmt.Fprintln(stdout, addr)
	return nil
}

// down sends SIGTERM to the process that runs the broker and waits until it has exited.
func down(ctx context.Context, s state) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	pid, _, err := s.read()
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the broker's process %d: %w", pid, err)
	}
	if _, err := s.await(ctx, func(now int, _ string) bool { return now != pid }); err != nil {
		return fmt.Errorf("wait for the broker to stop: %w", err)
	}
	return nil
}
