package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// Inspect runs `postgres --version` in binDir. It returns an error if initdb
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
	out, err := exec.CommandContext(ctx, postgres, "--version").Output() //nolint:gosec // the operator's choice of server
	if err != nil {
		return Install{}, fmt.Errorf("%s --version: %w", postgres, err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return Install{}, fmt.Errorf("%s --version printed %q", postgres, out)
	}
	i.Major, _ = strconv.Atoi(string(m[1]))
	i.minor, _ = strconv.Atoi(string(m[2])) // absent in a beta: 0
	return i, nil
}

func (i Install) program(name string) string { return filepath.Join(i.BinDir, name) }

// Installed returns the installs that this machine can start without a
// download, at most one per major version. The one in PATH comes first, then
// those of distributions, newest first, then those in the cache, newest first.
func Installed(ctx context.Context) []Install {
	var all []Install
	if p, err := exec.LookPath("postgres"); err == nil {
		all = appendUsable(ctx, all, filepath.Dir(p))
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
		all = appendUsable(ctx, all, glob(pattern)...)
	}
	return appendUsable(ctx, all, cachedBinDirs()...)
}

// appendUsable appends the installs in binDirs, newest first, whose major version is not in all yet.
func appendUsable(ctx context.Context, all []Install, binDirs ...string) []Install {
	var found []Install
	for _, dir := range binDirs {
		if i, err := Inspect(ctx, dir); err == nil && i.Major >= Oldest {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Install) int {
		return cmp.Or(cmp.Compare(b.Major, a.Major), cmp.Compare(b.minor, a.minor))
	})
	for _, i := range found {
		if !slices.ContainsFunc(all, func(have Install) bool { return have.Major == i.Major }) {
			all = append(all, i)
		}
	}
	return all
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
	for _, i := range Installed(ctx) {
		if major == 0 || i.Major == major {
			return i, nil
		}
	}
	return Fetch(ctx, major, report)
}
