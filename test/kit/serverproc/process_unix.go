//go:build unix

package serverproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Process is a child process. Its methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start starts cmd in a process group of its own, with d as the directory it
// lives in. When this process ends first, cmd gets the signal orphaned, and
// SIGKILL 10 s later. Start sets cmd.SysProcAttr's group and, on Linux, its
// parent-death signal; the rest of cmd is the caller's. One goroutine waits
// for the process; it has returned when Done is closed.
func (d *Dir) Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setParentDeathSignal(cmd.SysProcAttr, orphaned)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second // grandchildren may hold our pipes a little longer
	}

	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that
		// forked ends, so that thread stays with this goroutine.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			err = d.watch(cmd.Process.Pid, orphaned)
			if err != nil {
				err = errors.Join(err, cmd.Process.Kill(), cmd.Wait())
			}
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		_ = d.watch(0, 0) // fails only when d has been removed: then nobody watches
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Run starts a program as [Dir.Start] does and waits until it has ended. The error
// is that of the program's exit or, if ctx is done before, ctx's cause; the program
// is killed then.
func (d *Dir) Run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := d.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		killed := p.Signal(syscall.SIGKILL)
		<-p.Done()
		return errors.Join(err, killed)
	}
	return p.Err()
}

// PID returns the process id. It may belong to another process once Done is
// closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and has been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not been waited for.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err returns how the process ended: nil for exit status 0. It must not be
// called before Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends sig. It returns nil if the process has already ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID(), err)
	}
	return nil
}

// Pause stops the process (SIGSTOP) until Resume. Signals other than SIGKILL
// wait as well.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume undoes Pause, if there was one.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Wait blocks until the process has ended or ctx is done. The error is ctx's cause;
// how the process ended is what Err returns.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End sends sig and waits as Wait does.
func (p *Process) End(ctx context.Context, sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("wait for process %d to end: %w", p.PID(), err)
	}
	return nil
}
