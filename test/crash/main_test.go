// Package crash repeatedly kills, stops, freezes and replaces the relay and its servers under load.
//
// OUTBOX_TEST_CYCLES is the number of kills of each kind.
package crash

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
