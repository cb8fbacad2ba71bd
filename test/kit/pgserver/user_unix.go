//go:build unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A credential is the user and group that a program runs with.
type credential = syscall.Credential

// serverUser returns the credential of the server's programs, or nil for that
// of this process. If this process runs as root, serverUser returns an
// unprivileged user, because Postgres refuses to run as root. The user must be
// in the user database, because initdb looks it up there.
func serverUser() (*credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no credential is what SysProcAttr calls our own
	}
	for _, name := range []string{"nobody", "postgres"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		return &credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("this is root and Postgres refuses to run as root, but there is neither a user nobody nor a user postgres to run it as")
}

// giveTo changes the owner of path to the server's user.
func giveTo(cred *credential, path string) error {
	if cred == nil {
		return nil
	}
	return os.Chown(path, int(cred.Uid), int(cred.Gid))
}

// serverUserCanRead returns an error if the server's user cannot execute the
// file at path. If this process runs as root, everybody must have the
// permission to execute the file and each directory above it.
func serverUserCanRead(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s is not accessible to the unprivileged user Postgres has to run as", p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

// procAttr runs a program as the server's user and in a process group of its
// own, so that Ctrl-C does not reach it.
func procAttr(cred *credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}

// kill kills a process, which need not be a child of this process. It is no
// error if the process has exited.
func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// temporaryParent returns os.TempDir, or /tmp if the server's user has no
// access to that.
func temporaryParent() string {
	dir := os.TempDir()
	if serverUserCanRead(dir) != nil {
		return "/tmp"
	}
	return dir
}
