package pgtest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// StandbySlot is the name of the physical slot that a Standby streams from.
const StandbySlot = "standby"

// Standby starts a hot standby of srv for this test alone, on a backup like that of
// [Restored]. The standby streams from primary (host:port), which is srv's address or
// that of a proxy in front of srv. It is ready for the synchronization of logical
// slots, which settings may enable: hot_standby_feedback is on and primary_conninfo
// names database.
func Standby(tb testing.TB, srv *pgserver.Server, primary, database string, settings map[string]string) *pgserver.Server {
	tb.Helper()
	adminOf(srv).Exec(tb, `SELECT pg_create_physical_replication_slot($1, true)`, StandbySlot)
	host, port, _ := strings.Cut(primary, ":")
	all := map[string]string{
		"primary_conninfo":     fmt.Sprintf("host=%s port=%s user=postgres dbname=%s sslmode=disable", host, port, database),
		"primary_slot_name":    StandbySlot,
		"hot_standby_feedback": "on",
	}
	maps.Copy(all, settings)
	return Start(tb, pgserver.Config{BinDir: srv.Install().BinDir, Settings: all, Data: func(dir string) error {
		return errors.Join(backup(tb, srv, dir), os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o600))
	}})
}

// Restored starts a server for this test alone on an online backup of srv. The server
// has srv's system identifier, timeline and data. As with pg_basebackup, it does not
// have srv's replication slots.
func Restored(tb testing.TB, srv *pgserver.Server) *pgserver.Server {
	tb.Helper()
	return Start(tb, pgserver.Config{BinDir: srv.Install().BinDir, Data: func(dir string) error { return backup(tb, srv, dir) }})
}

// backup copies srv's data directory to dir while srv runs.
// https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP
func backup(tb testing.TB, srv *pgserver.Server, dir string) error {
	tb.Helper()
	ctx := tb.Context()
	conn, err := pgx.Connect(ctx, srv.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(cleanupContext(tb))
	start, stop := `SELECT pg_backup_start('test', true)`, `SELECT labelfile FROM pg_backup_stop(false)`
	if srv.Install().Major < 15 {
		start, stop = `SELECT pg_start_backup('test', true, false)`, `SELECT labelfile FROM pg_stop_backup(false, false)`
	}
	if _, err := conn.Exec(ctx, start); err != nil {
		return err
	}
	if err := copyTree(srv.DataDir(), dir, notCopied()...); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, stop).Scan(&label); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "backup_label"), []byte(label), 0o600),
		copyTree(filepath.Join(srv.DataDir(), walDir), filepath.Join(dir, walDir)))
}

const walDir = "pg_wal"

// notCopied lists the files of the data directory that belong to the running server,
// and pg_wal, which is copied after the backup has ended. Directories are copied
// without their content.
func notCopied() []string {
	return []string{
		"postmaster.pid", "postmaster.opts", walDir, "pg_replslot",
		"pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
	}
}

// copyTree copies a directory. It skips files that are removed while it runs.
func copyTree(from, to string, without ...string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir():
			err = os.MkdirAll(filepath.Join(to, name), 0o700)
			if err == nil && slices.Contains(without, name) {
				return fs.SkipDir
			}
			return err
		case slices.Contains(without, name):
			return nil
		}
		data, err := os.ReadFile(path) //nolint:gosec // of a server of ours
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600) //nolint:gosec // a directory of ours
		}
		return err
	})
}
