// Package e2e runs the built relay between Postgres and Kafka. It tests the main job, the possible rows
// and records, every verb, configuration, access rights, and faults of Postgres and Kafka.
//
//   - OUTBOX_TEST_ROWS is the number of rows of the large run.
//   - OUTBOX_TEST_HUGE=1 adds a value of 600 MB, which Postgres cannot print. It needs several times as
//     much memory.
//   - OUTBOX_TEST_FREEZE is the number of seconds for which a test freezes a broker.
package e2e

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
