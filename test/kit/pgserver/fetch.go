package pgserver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// fetchable returns the release that Fetch downloads for a major version: the
// newest that the embedded-postgres project has built.
func fetchable(major int) (version string, ok bool) {
	version, ok = map[int]string{14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", Newest: "18.6.0"}[major]
	return version, ok
}

// Fetch makes sure that the programs of a major version (zero: the newest) are
// in the cache. If they are not, it downloads about 15 MB and starts a server
// once to test them. Among concurrent processes, one downloads and the others
// wait. If report is not nil, Fetch calls it from one goroutine during a
// download. The program must have called Init.
func Fetch(ctx context.Context, major int, report func(Progress)) (Install, error) {
	major = cmp.Or(major, Newest)
	version, ok := fetchable(major)
	if !ok {
		return Install{}, fmt.Errorf("there is no Postgres %d to fetch: only %d to %d", major, Oldest, Newest)
	}
	dir, err := cachePath(version)
	if err != nil {
		return Install{}, fmt.Errorf("fetch Postgres %s: %w", version, err)
	}
	err = serverproc.Fill(ctx, dir, func(staging string) error {
		return fetchInto(ctx, staging, version, report)
	})
	if err != nil {
		return Install{}, fmt.Errorf("fetch Postgres %s: %w", version, err)
	}
	return Inspect(ctx, filepath.Join(dir, "bin"))
}

func cachePath(version string) (string, error) {
	cache, err := serverproc.CacheDir()
	return filepath.Join(cache, fmt.Sprintf("postgres-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH)), err
}

func cachedBinDirs() []string {
	pattern, err := cachePath("*")
	if err != nil {
		return nil
	}
	return glob(filepath.Join(pattern, "bin"))
}

// fetchInto fetches a release in a child process and moves its programs into
// dir. The child process runs this program again, for three reasons. The
// library refuses to run as root, so the child runs as the server's user. The
// library cannot be canceled. It reports no progress either, and to measure
// the progress the child replaces its default HTTP transport.
func fetchInto(ctx context.Context, dir, version string, report func(Progress)) error {
	cred, err := serverUser()
	if err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	if err := giveTo(cred, work); err != nil {
		return err
	}
	if err := runFetcher(ctx, work, version, cred, report); err != nil {
		return err
	}
	for _, part := range []string{"bin", "lib", "share"} {
		if err := os.Rename(filepath.Join(work, fetchedDir, part), filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	return makeOurs(dir)
}

func runFetcher(ctx context.Context, work, version string, cred *credential, report func(Progress)) error {
	if !initialized.Load() {
		return errors.New("this program does not call pgserver.Init first")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if runtime.GOOS == "linux" {
		exe = "/proc/self/exe" // the server's user may have no access to the program's path
	}
	stderr := serverproc.NewTail(nil)
	// Not CommandContext, which kills the child: the child may have a server to
	// stop. It exits when its standard input ends, which also happens when this
	// process exits.
	cmd := exec.Command(exe) //nolint:gosec,noctx // ourselves; see above
	cmd.Dir = work
	cmd.Env = fetcherEnv(os.Environ(), work, version)
	cmd.SysProcAttr = procAttr(cred)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = stdin.Close() })
	defer stop()
	relay(stdout, report)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// fetcherEnv returns the variables of environ that a download may need. It
// leaves out all others, which may be secrets: the child may run as another
// user.
func fetcherEnv(environ []string, home, version string) []string {
	env := []string{fetchVariable + "=" + version, "HOME=" + home, "TMPDIR=" + home, "LC_ALL=C"}
	for _, kv := range environ {
		switch name, _, _ := strings.Cut(kv, "="); strings.ToUpper(name) {
		case "PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, kv)
		}
	}
	return env
}

// relay decodes the child's progress until its output ends.
func relay(stdout io.Reader, report func(Progress)) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var p Progress
		if json.Unmarshal(lines.Bytes(), &p) == nil && report != nil {
			report(p)
		}
	}
}

// makeOurs changes the owner of a directory tree to the current user, and lets
// everybody read and execute the files that the child process could.
func makeOurs(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, os.Geteuid(), os.Getegid()); err != nil { //nolint:gosec // the child that could change the tree has ended
			return err
		}
		if entry.Type()&os.ModeSymlink != 0 {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		read := info.Mode().Perm() & 0o500
		return os.Chmod(path, info.Mode().Perm()&0o755|read>>3|read>>6) //nolint:gosec // programs for another user to run
	})
}
