package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// fromTemplate returns a function that creates a data directory for the programs in
// binDir. It copies a directory that initdb created once on this machine, because
// initdb takes half a second of CPU time. The copies have the same system identifier.
func fromTemplate(tb testing.TB, binDir string) func(dir string) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	cache, err := serverproc.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	template := filepath.Join(cache, "pgdata"+strings.ReplaceAll(binDir, string(filepath.Separator), "-"))
	if err := serverproc.Fill(ctx, template, func(staging string) error { return initialize(ctx, binDir, staging) }); err != nil {
		tb.Fatalf("make a data directory for %s: %v", binDir, err)
	}
	return func(dir string) error {
		return errors.Join(os.CopyFS(dir, os.DirFS(template)), os.Chmod(dir, 0o700)) //nolint:gosec // Postgres demands it of its data directory
	}
}

// initialize fills dir with the data directory of a server that has run once.
func initialize(ctx context.Context, binDir, dir string) error {
	srv, err := pgserver.Start(ctx, pgserver.Config{BinDir: binDir})
	if err != nil {
		return err
	}
	err = srv.Shutdown(ctx)
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(srv.DataDir()))
	}
	return errors.Join(err, srv.Stop(ctx))
}
