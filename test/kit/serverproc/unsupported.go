//go:build !unix

package serverproc

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
)

// A Dir cannot be created on this system.
type Dir struct{}

// MakeDir returns [errors.ErrUnsupported].
func MakeDir(_, _ string) (*Dir, error) { return nil, errors.ErrUnsupported }

// Path returns the empty string.
func (d *Dir) Path() string { return "" }

// Remove returns [errors.ErrUnsupported].
func (d *Dir) Remove() error { return errors.ErrUnsupported }

// Start returns [errors.ErrUnsupported].
func (d *Dir) Start(_ *exec.Cmd, _ syscall.Signal) (*Process, error) {
	return nil, errors.ErrUnsupported
}

// Run returns [errors.ErrUnsupported].
func (d *Dir) Run(_ context.Context, _ *exec.Cmd) error { return errors.ErrUnsupported }

// A Process cannot be started on this system.
type Process struct{}

// PID returns 0.
func (p *Process) PID() int { return 0 }

// Done returns nil.
func (p *Process) Done() <-chan struct{} { return nil }

// Running returns false.
func (p *Process) Running() bool { return false }

// Err returns [errors.ErrUnsupported].
func (p *Process) Err() error { return errors.ErrUnsupported }

// Signal returns [errors.ErrUnsupported].
func (p *Process) Signal(_ syscall.Signal) error { return errors.ErrUnsupported }

// Pause returns [errors.ErrUnsupported].
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume returns [errors.ErrUnsupported].
func (p *Process) Resume() error { return errors.ErrUnsupported }

// Wait returns [errors.ErrUnsupported].
func (p *Process) Wait(_ context.Context) error { return errors.ErrUnsupported }

// End returns [errors.ErrUnsupported].
func (p *Process) End(_ context.Context, _ syscall.Signal) error { return errors.ErrUnsupported }

// CacheDir returns [errors.ErrUnsupported].
func CacheDir() (string, error) { return "", errors.ErrUnsupported }

// Fill returns [errors.ErrUnsupported].
func Fill(_ context.Context, _ string, _ func(staging string) error) error {
	return errors.ErrUnsupported
}

// Lock returns [errors.ErrUnsupported].
func Lock(_ context.Context, _ string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
