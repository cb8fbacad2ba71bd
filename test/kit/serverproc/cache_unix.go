//go:build unix

package serverproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CacheDir returns the directory for downloads and creates it if necessary. It is
// below [os.UserCacheDir] for an ordinary user. For root it is in /var/cache,
// because root's servers run as an unprivileged user that cannot read root's home.
// The cache contains programs, so CacheDir fails if other users can write to it.
func CacheDir() (string, error) {
	var parent string
	if os.Geteuid() == 0 {
		parent = "/var/cache"
	} else {
		var err error
		if parent, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(parent, "outbox-cdc")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the unprivileged server reads it
		return "", fmt.Errorf("create the cache: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("cache %s must belong to uid %d and be writable by nobody else", dir, os.Geteuid())
	}
	return dir, nil
}

// Fill makes sure that the directory dir exists and is complete. If it does not
// exist, Fill calls produce with an empty directory next to it. When produce
// returns nil, Fill renames that directory to dir. At most one process fills dir at
// a time. Other processes wait until it has finished or ctx is done. The parent of
// dir must exist.
func Fill(ctx context.Context, dir string, produce func(staging string) error) error {
	if complete(dir) {
		return nil
	}
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer unlock()
	if complete(dir) {
		return nil
	}
	staging := dir + ".new"
	if err := os.RemoveAll(staging); err != nil { // left by a process that was killed
		return err
	}
	if err := os.Mkdir(staging, 0o755); err != nil { //nolint:gosec // the unprivileged server reads it
		return err
	}
	if err := produce(staging); err != nil {
		return errors.Join(err, os.RemoveAll(staging))
	}
	return os.Rename(staging, dir)
}

func complete(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// Lock takes an exclusive flock(2) on the file at path. It waits for the lock until
// ctx is done. It creates the file if necessary and never removes it. The kernel
// releases the lock when this process exits.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a path of the cache
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "flock", Path: path, Err: err}, f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}
