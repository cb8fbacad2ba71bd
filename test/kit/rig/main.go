package rig

import (
	"flag"
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Main is the TestMain of packages that use a rig. Unless -parallel is given, it runs more parallel
// tests than there are processors, as these tests mostly wait for other processes.
func Main(m *testing.M) {
	atATime := "6"
	if need.Full() {
		atATime = "4" // each has more servers
	}
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	code := pgtest.Wrap(kafkatest.Wrap(m)).Run()
	_ = os.RemoveAll(built.dir) // it is in the system's directory for temporary files
	os.Exit(code)
}
