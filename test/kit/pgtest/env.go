package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// findInstalls returns what the test run may use, at least one, the default
// first.
func findInstalls(ctx context.Context) ([]pgserver.Install, error) {
	var all []pgserver.Install
	for _, entry := range filepath.SplitList(os.Getenv("OUTBOX_TEST_POSTGRES")) { //nolint:forbidigo // a setting of the test run
		i, err := listed(ctx, entry)
		if err != nil {
			return nil, fmt.Errorf("OUTBOX_TEST_POSTGRES: %w", err)
		}
		all = append(all, i)
	}
	if len(all) == 0 {
		all = pgserver.Installed(ctx)
	}
	if len(all) == 0 {
		i, err := pgserver.Find(ctx, 0, nil)
		if err != nil {
			return nil, err
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
