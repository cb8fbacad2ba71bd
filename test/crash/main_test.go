// Package crash kills, stops, freezes and replaces the relay and its servers, again and again
// under load.
//
// OUTBOX_TEST_CYCLES is the number of kills of every kind.
package crash

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
