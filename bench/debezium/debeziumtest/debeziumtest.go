// Package debeziumtest gives tests a real Debezium.
package debeziumtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Need returns a Debezium, or has the test miss it ([need.Missing]). It is a download of a
// hundred megabytes and minutes of two cores: where nobody has fetched it before, it takes
// OUTBOX_TEST_DEBEZIUM=1 or OUTBOX_TEST_REQUIRED=1 to do so.
func Need(tb testing.TB) debezium.Install {
	tb.Helper()
	cache, err := serverproc.CacheDir()
	if err != nil {
		need.Missing(tb, "Debezium: %v", err)
	}
	_, err = os.Stat(filepath.Join(cache, "debezium-"+debezium.Version))
	if err != nil && os.Getenv("OUTBOX_TEST_DEBEZIUM") != "1" && os.Getenv("OUTBOX_TEST_REQUIRED") != "1" { //nolint:forbidigo // settings of the test run
		tb.Skip("Debezium has not been fetched; OUTBOX_TEST_DEBEZIUM=1 does it")
	}
	install, err := debezium.Find(tb.Context())
	if err != nil {
		need.Missing(tb, "Debezium: %v", err)
	}
	return install
}
