package measure

import (
	"cmp"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// PgRecvlogical is Postgres' own reader of a slot, writing to /dev/null: the floor, what the server
// can send when nobody does anything with it.
//
// See https://www.postgresql.org/docs/current/app-pgrecvlogical.html.
type PgRecvlogical struct {
	Path     string   // of the program
	Conninfo string   // empty: the target's DSN. Every user of the machine can see it
	Environ  []string // nil: that of this process
}

var _ Contender = PgRecvlogical{}

// Name returns the program's name.
func (PgRecvlogical) Name() string { return "pg_recvlogical" }

// Produces returns false.
func (PgRecvlogical) Produces() bool { return false }

// Start reads t's slot to its end.
func (r PgRecvlogical) Start(_ context.Context, t Target) (*Process, error) {
	cmd := exec.Command(r.Path, //nolint:gosec,noctx // the caller's choice; Stop ends it
		"--start", "--no-loop", "--no-password",
		"--dbname", cmp.Or(r.Conninfo, t.DSN), "--slot", t.Slot, "--endpos", t.End,
		"--option", "proto_version=1", "--option", "publication_names="+t.Publication,
		"--file", "/dev/null", "--fsync-interval", "0", "--status-interval", "1")
	cmd.Env = r.Environ
	return t.Spawn(cmd)
}

// FindPgRecvlogical looks for the program where distributions put it, the newest version first, and
// then in PATH, where Debian has a script that chooses one. It returns the empty string where there
// is none.
func FindPgRecvlogical() string {
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // the PGDG packages for RHEL
		"/usr/libexec/postgresql*",           // Alpine
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on arm64
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on amd64
		"/Library/PostgreSQL/*/bin",          // the installers of EDB
		"/usr/local/pgsql/bin",               // built from source
	} {
		files, err := filepath.Glob(filepath.Join(pattern, "pg_recvlogical"))
		if err != nil {
			panic(err) // a malformed pattern of ours
		}
		slices.SortFunc(files, func(a, b string) int { return cmp.Compare(majorIn(b), majorIn(a)) })
		found = append(found, files...)
	}
	if len(found) > 0 {
		return found[0]
	}
	path, err := exec.LookPath("pg_recvlogical")
	if err != nil {
		return ""
	}
	return path
}

// majorIn returns the version in a path; 0 without one.
func majorIn(path string) int {
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(path))
	return n
}
