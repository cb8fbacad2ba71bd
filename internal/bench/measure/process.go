package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Usage is the resource usage of a process and its children.
type Usage struct {
	CPU     time.Duration // user and system time
	RSS     int64         // current resident memory, in bytes
	PeakRSS int64         // maximum resident memory, in bytes
}

// sampleInterval is the interval at which the memory of a process with children is measured. For a process
// without children, the kernel records the exact peak.
const sampleInterval = 100 * time.Millisecond

// killTimeout limits how long a killed process may take to end.
const killTimeout = 5 * time.Second

// A Process is a child process. On Linux, its usage is known at any time. On other systems, only its CPU time is
// known, after it has ended. The methods may be called from any goroutine.
type Process struct {
	cmd    *exec.Cmd
	proc   *serverproc.Process
	dir    *serverproc.Dir
	output *serverproc.Tail
	begun  time.Time
	reads  io.Writer // standard input of a process that gets its rows from us; or else nil

	mu       sync.Mutex
	last     Usage // of the newest sample
	sampling sync.WaitGroup
}

// spawn starts cmd. dir then belongs to the process, even after an error.
func spawn(dir *serverproc.Dir, cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, dir: dir, output: serverproc.NewTail(nil)}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	p.begun = time.Now()
	var err error
	if p.proc, err = dir.Start(cmd, syscall.SIGTERM); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	p.sampling.Go(p.sample)
	return p, nil
}

// give tells a process that gets its rows from us to publish the rows from first to last-1. It is one write, so it may be
// called from several goroutines.
func (p *Process) give(first, last int) error {
	_, err := fmt.Fprintf(p.reads, "%d %d\n", first, last)
	return err
}

// sample measures the usage until the process ends.
func (p *Process) sample() {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.Usage()
		case <-p.proc.Done():
			return
		}
	}
}

// Usage returns the usage so far.
func (p *Process) Usage() Usage {
	u, alive := usage(p.proc.PID())
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.proc.Running() {
		p.last.RSS = 0
		p.last.CPU = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		return p.last
	}
	if alive {
		u.PeakRSS = max(u.PeakRSS, p.last.PeakRSS)
		u.CPU = max(u.CPU, p.last.CPU)
		p.last = u
	}
	return p.last
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.proc.Done() }

// Stop asks the process to end and waits for it. If ctx ends first, Stop kills the process. It removes the
// directory. The error says that the process did not end cleanly.
func (p *Process) Stop(ctx context.Context) error {
	p.Usage()
	err := p.proc.End(ctx, syscall.SIGTERM)
	if err != nil {
		killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		err = errors.Join(err, p.proc.End(killing, syscall.SIGKILL))
	}
	if !p.proc.Running() {
		p.sampling.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](p.proc.Err()); err == nil && (!ok || !endedBy(exit, syscall.SIGTERM)) {
			err = p.failure()
		}
	}
	return errors.Join(err, p.dir.Remove())
}

// failure returns how the process ended, or nil for exit status 0.
func (p *Process) failure() error {
	err := p.proc.Err()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	return fmt.Errorf("%w; its last output:\n%s", err, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
}

// shownLines is the number of output lines in the error of a failed process.
const shownLines = 12
