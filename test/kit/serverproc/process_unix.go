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
	err  error // valid after done is closed
}

// Start starts cmd in a process group of its own. If this process exits first, cmd
// gets the signal orphaned, and SIGKILL 10 s later. d is then removed. Start sets
// the process group in cmd.SysProcAttr and, on Linux, the parent-death signal. The
// caller sets the rest of cmd. A goroutine waits for the process and then closes
// Done.
func (d *Dir) Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setParentDeathSignal(cmd.SysProcAttr, orphaned)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second // the child's own children may keep the pipes open a little longer
	}

	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked
		// the child exits. LockOSThread keeps that thread alive.
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
		_ = d.watch(0, 0) // fails only if d has been removed, and then the shell has exited
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Run starts a program like [Dir.Start] and waits until it has exited. It returns
// the error of [Process.Err]. If ctx is done first, Run kills the program and
// returns ctx's cause.
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

// PID returns the process id. After Done is closed, it may belong to another
// process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has exited and has been waited for.
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

// Err returns the error of the process, or nil for exit status 0. Call it only
// after Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends sig. It returns nil if the process has already exited.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID(), err)
	}
	return nil
}

// Pause stops the process (SIGSTOP) until Resume. Until then the process handles
// no signal except SIGKILL.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume undoes Pause. It does nothing if the process is not paused.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Wait blocks until the process has exited or ctx is done. It returns ctx's cause if
// ctx is done first. Err returns the error of the process.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End sends sig, also to a paused process, and waits like Wait.
func (p *Process) End(ctx context.Context, sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	if err := p.Resume(); err != nil { // a paused process handles the signal when it continues
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("wait for process %d to end: %w", p.PID(), err)
	}
	return nil
}
