package pgtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// Complete returns the installs with pg_upgrade and pg_dump, the oldest version first: those of this machine, and
// those in the directories that OUTBOX_TEST_PG_UPGRADE lists.
func Complete(tb testing.TB) []pgserver.Install {
	tb.Helper()
	all := pgserver.Installed(tb.Context())
	for _, dir := range filepath.SplitList(os.Getenv("OUTBOX_TEST_PG_UPGRADE")) {
		i, err := pgserver.Inspect(tb.Context(), dir)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, i)
	}
	all = slices.DeleteFunc(all, func(i pgserver.Install) bool { return !i.Upgrades() })
	if len(all) == 0 {
		need.Missing(tb, "no Postgres with pg_upgrade and pg_dump: install a package such as postgresql, or list its bin directory in OUTBOX_TEST_PG_UPGRADE")
	}
	slices.SortFunc(all, func(a, b pgserver.Install) int { return a.Major - b.Major })
	return all
}
