// Package need skips or fails tests whose requirements are not met: time, a server, a tool, a
// privilege.
//
// `go test ./...` needs Go only: it uses one Postgres, installed or downloaded, and an in-process
// Kafka. With OUTBOX_TEST_FULL=1, a full run, tests also use every major version of Postgres, real
// brokers, Debezium and Chromium, and long tests and measurements run. A full run skips nothing: a
// test whose requirements are not met fails.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Full reports whether the test run is a full one.
func Full() bool { return os.Getenv("OUTBOX_TEST_FULL") == "1" }

// FullRun skips the test unless the run is a full one. what says what the test takes.
func FullRun(tb testing.TB, what string) {
	tb.Helper()
	if !Full() {
		tb.Skipf("OUTBOX_TEST_FULL=1 runs it: %s", what)
	}
}

// Missing skips the test, naming what the machine lacks. In a full run it fails the test.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if Full() {
		tb.Errorf(format, args...)
		tb.Fatal("OUTBOX_TEST_FULL=1 asks for it")
	}
	tb.Skipf(format, args...)
}

// Program returns the path of a program, or has the test miss it.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(tb, "no program %s: %v", name, err)
	}
	return path
}
