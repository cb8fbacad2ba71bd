// Package crash repeatedly kills, stops, freezes and replaces the relay and its servers under load.
//
// OUTBOX_TEST_CYCLES is the number of kills of each kind. OUTBOX_TEST_HOSTILE is how many seconds hostile roles write
// beside a valid workload.
package crash

import (
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) {
	// The credentials of relays that send to a server of package awstest.
	os.Setenv("AWS_ACCESS_KEY_ID", "id")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	rig.Main(m)
}
