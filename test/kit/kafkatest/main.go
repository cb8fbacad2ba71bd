package kafkatest

import "os"

// A Runner is what TestMain runs: a *testing.M, or one that is wrapped.
type Runner interface{ Run() int }

// Main runs m's tests, stops the broker they shared and exits.
func Main(m Runner) { os.Exit(Wrap(m).Run()) }

// Wrap returns a Runner that runs m and then stops the broker the tests
// shared, for a TestMain that has more to do.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	defer stopShared()
	return w.Runner.Run()
}
