package kafkatest

import (
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// A Runner is what TestMain runs: a *testing.M, or one that is wrapped.
type Runner interface{ Run() int }

// Main runs m's tests, stops the broker they shared and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) } //nolint:forbidigo // it stands for TestMain

// Wrap returns a Runner that runs m and then stops the broker the tests
// shared, for a TestMain that has more to do.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}

// unavailable is for a test that has no Kafka.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	need.Missing(tb, "no Kafka for this test: %v", err)
}
