//go:build unix

package filestore

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockInterval is how often a lock that another process holds is tried again. It holds it for one change.
const lockInterval = 5 * time.Millisecond

// lock locks a file, which it creates, against other processes and other calls. It waits until ctx ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the directory is the operator's choice
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			_ = f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: context.Cause(ctx)}
		}
	}
}
