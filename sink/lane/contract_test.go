package lane

import (
	"fmt"
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// TestContract runs the suite of package sinktest, for every kind of lane and request. Records are rejected by the broker,
// or by Options.Prepare. TestChaos has the other kinds if it is not a full run.
func TestContract(t *testing.T) {
	full := os.Getenv("OUTBOX_TEST_FULL") != ""
	for i, o := range []Options{
		{RequestRecords: 5, RequestBytes: 1000},
		{RequestRecords: 50, PerDestination: true},
		{},
		{Outstanding: 4},
	} {
		for _, checks := range []bool{false, true} {
			if !full && (i > 1 || checks == (i == 0)) {
				continue
			}
			t.Run(fmt.Sprintf("%+v, checked %v", o, checks), func(t *testing.T) {
				t.Parallel()
				b := newMemoryBroker(o)
				b.checks = checks
				sinktest.Run(t, memorySubject{b})
			})
		}
	}
}
