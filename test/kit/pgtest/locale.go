package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Locales returns a directory with locales such as pt_BR.UTF-8, for [pgserver.Config.Locales]. It makes them with
// localedef, once on this machine.
func Locales(tb testing.TB, names ...string) string {
	tb.Helper()
	program := need.Program(tb, "localedef")
	cache, err := serverproc.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	dir := filepath.Join(cache, "locales-"+strings.Join(names, "-"))
	err = serverproc.Fill(ctx, dir, func(staging string) error {
		for _, name := range names {
			territory, charset, _ := strings.Cut(name, ".")
			out, err := exec.CommandContext(ctx, program, "-i", territory, "-f", charset, filepath.Join(staging, name)).CombinedOutput() //nolint:gosec // localedef
			if err != nil {
				return fmt.Errorf("make locale %s: %w: %s", name, err, out)
			}
		}
		return nil
	})
	if err != nil {
		need.Missing(tb, "no locales: %v", err)
	}
	return dir
}
