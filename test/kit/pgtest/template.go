package pgtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// fromTemplate returns a function that creates a data directory for the programs in
// binDir. It copies a directory that initdb created once on this machine, because
// initdb takes half a second of CPU time. Copies by the same name have the same system identifier.
func fromTemplate(tb testing.TB, binDir, name string) func(dir string) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	cache, err := serverproc.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	template := filepath.Join(cache, name+strings.ReplaceAll(binDir, string(filepath.Separator), "-"))
	if err := serverproc.Fill(ctx, template, func(staging string) error { return initialize(ctx, binDir, staging) }); err != nil {
		tb.Fatalf("make a data directory for %s: %v", binDir, err)
	}
	return func(dir string) error {
		return errors.Join(copyDir(dir, template), os.Chmod(dir, 0o700)) //nolint:gosec // Postgres demands it of its data directory
	}
}

// copyDir is like [os.CopyFS], but does not write the zeros at the end of a file, which are most of a WAL segment. A server's
// data directory has a thousand files, so it reads each with one call.
func copyDir(to, from string) error {
	var content []byte
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(copied, 0o777) //nolint:gosec // the directory above is the server's alone
		}
		content, err = readInto(content[:0], path)
		if err != nil {
			return err
		}
		written := bytes.TrimRight(content, "\x00")
		err = os.WriteFile(copied, written, 0o600)
		if err == nil && len(written) < len(content) {
			err = os.Truncate(copied, int64(len(content)))
		}
		return err
	})
}

// readInto appends the content of a file to buf.
func readInto(buf []byte, path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // a file of the template
	if err != nil {
		return buf, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return buf, err
	}
	buf = slices.Grow(buf, int(info.Size()))[:info.Size()]
	_, err = io.ReadFull(f, buf)
	return buf, err
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
