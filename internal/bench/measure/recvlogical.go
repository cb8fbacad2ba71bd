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

// PgRecvlogical is the program pg_recvlogical, writing to /dev/null. It is the floor: how fast the server can
// send.
//
// See https://www.postgresql.org/docs/current/app-pgrecvlogical.html.
type PgRecvlogical struct {
	Path     string   // of the program
	Conninfo string   // empty: the target's DSN. Every user of the machine can see it in the process list
	Environ  []string // nil: that of this process
}

var _ Contender = PgRecvlogical{}

// Name returns the program's name.
func (PgRecvlogical) Name() string { return "pg_recvlogical" }

// Produces returns false.
func (PgRecvlogical) Produces() bool { return false }

// Start starts reading t's slot to t.End.
func (r PgRecvlogical) Start(_ context.Context, t Target) (*Process, error) {
	cmd := exec.Command(r.Path, //nolint:gosec,noctx // the caller's choice; Stop ends it
		"--start", "--no-loop", "--no-password",
		"--dbname", cmp.Or(r.Conninfo, t.DSN), "--slot", t.Slot, "--endpos", t.End,
		"--option", "proto_version=1", "--option", "publication_names="+t.Publication,
		"--file", "/dev/null", "--fsync-interval", "0", "--status-interval", "1")
	cmd.Env = r.Environ
	return t.Spawn(cmd)
}

// FindPgRecvlogical returns the path of pg_recvlogical. It searches the directories of distributions, the newest
// version first, and then PATH, where Debian has a wrapper script. It returns "" if there is none.
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

// majorIn returns the major version in a path, or 0.
func majorIn(path string) int {
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(path))
	return n
}
