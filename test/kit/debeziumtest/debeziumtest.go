// Package debeziumtest gives tests a real Debezium.
package debeziumtest

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// Need returns a Debezium. It is a download of a hundred megabytes, and minutes of two cores:
// it takes a full run.
func Need(tb testing.TB) debezium.Install {
	tb.Helper()
	need.FullRun(tb, "it needs Debezium")
	install, err := debezium.Find(tb.Context())
	if err != nil {
		need.Missing(tb, "Debezium: %v", err)
	}
	return install
}
