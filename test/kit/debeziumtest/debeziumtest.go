// Package debeziumtest provides a real Debezium server to tests.
package debeziumtest

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// Need installs Debezium and returns the installation. Unless the run is a full one, it skips the test.
// The installation downloads a hundred megabytes and keeps two cores busy for some minutes.
func Need(tb testing.TB) debezium.Install {
	tb.Helper()
	need.FullRun(tb, "it needs Debezium")
	install, err := debezium.Find(tb.Context())
	if err != nil {
		need.Missing(tb, "Debezium: %v", err)
	}
	return install
}
