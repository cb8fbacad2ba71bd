// Package runbook does what the pages say: the runbook, the page about operations, statements,
// links and code.
package runbook

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
