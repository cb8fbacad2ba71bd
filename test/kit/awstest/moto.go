package awstest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// motoVersion is the version in moto.txt.
const motoVersion = "5.2.5"

// requirements are the packages of the virtual environment, each with its version.
//
//go:embed moto.txt
var requirements []byte

// Moto returns the URL of the moto server that the tests share, a server of SQS and SNS. It is slow: a few dozen messages
// a second reach a queue through a topic. It runs until [Main] returns. Unless the run is a full one, Moto skips the test.
func Moto(tb testing.TB) string {
	tb.Helper()
	need.FullRun(tb, "it needs moto")
	return moto.start(tb, func(ctx context.Context, s *server) (*exec.Cmd, error) {
		cache, err := serverproc.CacheDir()
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(cache, "moto-"+motoVersion)
		if err := serverproc.Fill(ctx, dir, func(staging string) error { return installMoto(ctx, staging) }); err != nil {
			return nil, err
		}
		// The paths in the scripts of the environment are those of the directory where it was made.
		return exec.Command(filepath.Join(dir, "bin", "python3"), "-m", "moto.server", //nolint:gosec,noctx // no context ends the server
			"-H", "127.0.0.1", "-p", strconv.Itoa(s.port.Number())), nil
	})
}

// installMoto makes a virtual environment with moto.
func installMoto(ctx context.Context, dir string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("moto runs on Python: %w", err)
	}
	file := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(file, requirements, 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{python, "-m", "venv", dir},
		{filepath.Join(dir, "bin", "python3"), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", file},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // Python of PATH
			return fmt.Errorf("install moto: %w\n%s", err, out)
		}
	}
	return nil
}
