package pgtest

import (
	"os"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// A Runner is what TestMain runs: a *testing.M, or one that is wrapped.
type Runner interface{ Run() int }

// Main runs m's tests, stops the servers they shared and exits. It must be
// the first call of TestMain.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the servers the tests
// shared, for a TestMain that has more to do. It must be the first call of
// TestMain: in the process that fetches Postgres it does not return.
func Wrap(m Runner) Runner {
	pgserver.Init()
	return wrapped{m}
}

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}
