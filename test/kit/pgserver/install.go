package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

// The major versions that Start supports. Newest is the newest that Fetch
// downloads; an installed one may be newer.
const (
	Oldest = 14
	Newest = 18
)

// An Install is a directory with the programs of one Postgres server.
type Install struct {
	BinDir string // absolute, links resolved
	Major  int    // 15 of 15.13
	minor  int    // 13 of 15.13; 0 for a beta
}

// String returns the version, such as 15.13.
func (i Install) String() string { return fmt.Sprintf("%d.%d", i.Major, i.minor) }

// versionLine matches `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`; the version of a beta is 19beta1.
var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`)

// printed has what `postgres --version` printed, by path. Programs do not change while this one runs, and each test of a
// server of its own asks.
var printed struct { //nolint:gochecknoglobals // see above
	sync.Mutex
	lines map[string]string
}

// Inspect runs `postgres --version` in binDir, unless it has done so before. It returns an error if initdb
// or postgres is missing, or if the server's user cannot execute postgres.
func Inspect(ctx context.Context, binDir string) (Install, error) {
	postgres, err := filepath.EvalSymlinks(filepath.Join(binDir, "postgres"))
	if err != nil {
		return Install{}, err
	}
	if postgres, err = filepath.Abs(postgres); err != nil {
		return Install{}, err
	}
	i := Install{BinDir: filepath.Dir(postgres)}
	if _, err := os.Stat(i.program("initdb")); err != nil {
		return Install{}, err
	}
	if err := serverUserCanRead(postgres); err != nil {
		return Install{}, err
	}
	line, err := printedVersion(ctx, postgres)
	if err != nil {
		return Install{}, err
	}
	m := versionLine.FindStringSubmatch(line)
	if m == nil {
		return Install{}, fmt.Errorf("%s --version printed %q", postgres, line)
	}
	i.Major, _ = strconv.Atoi(m[1])
	i.minor, _ = strconv.Atoi(m[2]) // absent in a beta: 0
	return i, nil
}

func printedVersion(ctx context.Context, postgres string) (string, error) {
	printed.Lock()
	defer printed.Unlock()
	if line := printed.lines[postgres]; line != "" {
		return line, nil
	}
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", postgres, err)
	}
	if printed.lines == nil {
		printed.lines = make(map[string]string)
	}
	printed.lines[postgres] = string(out)
	return string(out), nil
}

func (i Install) program(name string) string { return filepath.Join(i.BinDir, name) }

// Installed returns the installs that this machine can start without a
// download, at most one per major version. The one in PATH comes first, then
// those of distributions, newest first, then those in the cache, newest first.
func Installed(ctx context.Context) []Install { return slices.Collect(installed(ctx)) }

// installed yields what Installed returns. It inspects the installs of a place when it comes to the place.
func installed(ctx context.Context) iter.Seq[Install] {
	return func(yield func(Install) bool) {
		var majors []int
		for _, binDirs := range places() {
			for _, i := range usable(ctx, binDirs) {
				if slices.Contains(majors, i.Major) {
					continue
				}
				majors = append(majors, i.Major)
				if !yield(i) {
					return
				}
			}
		}
	}
}

// places returns the directories that may have programs, by place.
func places() [][]string {
	var all [][]string
	if p, err := exec.LookPath("postgres"); err == nil {
		all = append(all, []string{filepath.Dir(p)})
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // the PGDG packages for RHEL
		"/usr/libexec/postgresql*",                           // Alpine
		"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on arm64
		"/usr/local/opt/postgresql@*/bin",                    // Homebrew on amd64
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/usr/local/pgsql/bin",                               // built from source
	} {
		all = append(all, glob(pattern))
	}
	return append(all, cachedBinDirs())
}

// usable returns the installs in binDirs, newest first.
func usable(ctx context.Context, binDirs []string) []Install {
	var found []Install
	for _, dir := range binDirs {
		if i, err := Inspect(ctx, dir); err == nil && i.Major >= Oldest {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Install) int {
		return cmp.Or(cmp.Compare(b.Major, a.Major), cmp.Compare(b.minor, a.minor))
	})
	return found
}

func glob(pattern string) []string {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		panic(err) // the pattern in this package is malformed
	}
	return dirs
}

// Find returns the first install of a major version (zero: of any) that
// Installed returns. If there is none, it calls Fetch with report.
func Find(ctx context.Context, major int, report func(Progress)) (Install, error) {
	for i := range installed(ctx) {
		if major == 0 || i.Major == major {
			return i, nil
		}
	}
	return Fetch(ctx, major, report)
}
