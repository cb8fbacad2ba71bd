package rig

import (
	"flag"
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Main is the TestMain of packages that use a rig. It runs 6 tests in parallel, and 4 in a full run. The
// flag -parallel overrides that. There may be more tests than processors, because these tests mostly wait
// for other processes.
func Main(m *testing.M) {
	atATime := "6"
	if need.Full() {
		atATime = "4" // in a full run each test has more servers
	}
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	code := pgtest.Wrap(kafkatest.Wrap(m)).Run()
	_ = os.RemoveAll(built.dir) // if this fails, the files stay only in the temporary directory
	os.Exit(code)
}
