package pgserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Upgrades reports whether the install has the programs of pg_upgrade, for a server that is upgraded from it or
// to it. Fetch downloads them for no version.
func (i Install) Upgrades() bool {
	for _, name := range []string{"pg_upgrade", "pg_controldata", "pg_dump", "pg_restore", "psql", "vacuumdb"} {
		if _, err := os.Stat(i.program(name)); err != nil {
			return false
		}
	}
	return true
}

// upgrade creates the data directory from that of old, which ends.
// https://www.postgresql.org/docs/current/pgupgrade.html
func (s *Server) upgrade(ctx context.Context, old *Server) error {
	if err := s.initdb(ctx); err != nil {
		return err
	}
	if err := old.Shutdown(ctx); err != nil {
		return err
	}
	err := s.dir.Run(ctx, s.command("pg_upgrade", "--username", superuser, "--socketdir", s.socketDir(),
		"--new-options", "-c wal_level=logical", // or it does not migrate slots
		"--old-bindir", old.install.BinDir, "--new-bindir", s.install.BinDir, "--old-datadir", old.DataDir(), "--new-datadir", s.DataDir()))
	if err != nil {
		return fmt.Errorf("run pg_upgrade from %s to %s: %w\n%s\n%s", old.install, s.install, err, s.log, s.upgradeLogs())
	}
	return nil
}

// upgradeLogs returns the ends of the logs of pg_dump and pg_restore, which the message of a failed pg_upgrade only names.
func (s *Server) upgradeLogs() string {
	const end = 16 << 10
	var all strings.Builder
	data := os.DirFS(s.DataDir())
	names, _ := fs.Glob(data, "pg_upgrade_output.d/*/log/pg_upgrade_dump_*.log") // the pattern is right
	for _, name := range names {
		if text, err := fs.ReadFile(data, name); err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", path.Base(name), text[max(0, len(text)-end):])
		}
	}
	return all.String()
}
