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

// serverUser returns the credential the server's programs run with, nil when
// that is our own: as root it is an unprivileged user's, because Postgres
// refuses to run as root. The user must have an entry in the user database,
// where initdb looks it up.
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

// giveTo makes path belong to the server's user.
func giveTo(cred *credential, path string) error {
	if cred == nil {
		return nil
	}
	return os.Chown(path, int(cred.Uid), int(cred.Gid))
}

// serverUserCanRead reports whether the server's user can execute the file at
// path: as root, whether everybody may, through every directory above it.
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

// procAttr runs a program as the server's user and out of reach of Ctrl-C.
func procAttr(cred *credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}

// kill ends a process that need not be our child, if it is still there.
func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// temporaryParent returns the temporary directory, or the system's when the
// server's user could not reach that.
func temporaryParent() string {
	dir := os.TempDir()
	if serverUserCanRead(dir) != nil {
		return "/tmp"
	}
	return dir
}
