package measure

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Usage is what a process and its children have used.
type Usage struct {
	CPU     time.Duration // user and system time
	RSS     int64         // resident memory now, bytes
	PeakRSS int64         // resident memory at most, bytes
}

// sampleInterval is how often a process with children has its memory added up. The peak of a
// process alone is the kernel's and misses nothing.
const sampleInterval = 100 * time.Millisecond

// killTimeout is how long a killed process may take to be gone.
const killTimeout = 5 * time.Second

// A Process is a running child. On Linux its usage is known at any time, elsewhere the CPU time
// once it has ended, and nothing of its memory. Its methods may be called from any goroutine.
type Process struct {
	cmd    *exec.Cmd
	proc   *serverproc.Process
	dir    *serverproc.Dir
	output *serverproc.Tail
	begun  time.Time

	mu       sync.Mutex
	last     Usage // of the newest sample
	sampling sync.WaitGroup
}

// spawn starts cmd. dir belongs to the process from then on, also after an error.
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

// sample ends with the process.
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

// Usage returns what p has used so far.
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

// Stop asks the process to end and waits for it; when ctx is done before, it is killed. Its
// directory is removed. The error is that of a process that did not end cleanly, or had ended
// by itself before and not cleanly.
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

// failure says how the process ended; nil for exit status 0.
func (p *Process) failure() error {
	err := p.proc.Err()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	return fmt.Errorf("%w; it printed at last:\n%s", err, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
}

// shownLines is how much of what a failed process printed belongs in an error.
const shownLines = 12
