package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// findInstalls returns the installations that the test run uses, at least one,
// the default first.
func findInstalls(ctx context.Context) ([]pgserver.Install, error) {
	entries := filepath.SplitList(os.Getenv("OUTBOX_TEST_POSTGRES"))
	if len(entries) == 0 && need.Full() {
		for major := pgserver.Newest; major >= pgserver.Oldest; major-- {
			entries = append(entries, strconv.Itoa(major))
		}
	}
	if len(entries) == 0 {
		i, err := pgserver.Find(ctx, 0, nil)
		return []pgserver.Install{i}, err
	}
	var all []pgserver.Install
	for _, entry := range entries {
		i, err := listed(ctx, entry)
		if err != nil {
			return nil, fmt.Errorf("find Postgres %q: %w", entry, err)
		}
		all = append(all, i)
	}
	return all, nil
}

func listed(ctx context.Context, entry string) (pgserver.Install, error) {
	if major, err := strconv.Atoi(entry); err == nil {
		return pgserver.Find(ctx, major, nil)
	}
	return pgserver.Inspect(ctx, entry)
}
