// Package e2e runs the built relay between a Postgres and a Kafka: the main job, what rows and
// records can be, every verb, configuration and rights, and faults on either side.
//
//   - OUTBOX_TEST_ROWS is the size of the big run.
//   - OUTBOX_TEST_HUGE=1 adds a value of 600 MB, which a server cannot print; it takes that
//     several times as much memory.
//   - OUTBOX_TEST_FREEZE is for how many seconds a broker is frozen.
package e2e

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
