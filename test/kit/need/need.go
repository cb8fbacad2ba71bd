// Package need skips or fails tests whose requirements are not met: time, a server, a tool, a
// privilege.
//
// `go test ./...` needs only Go. It uses one version of Postgres, installed or downloaded, and an
// in-process Kafka. OUTBOX_TEST_FULL=1 makes a run a full one. Tests then also use every major version
// of Postgres, real brokers, Debezium and Chromium, and long tests and measurements run. A full run
// skips nothing: a test whose requirements are not met fails.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Full reports whether the test run is a full one.
func Full() bool { return os.Getenv("OUTBOX_TEST_FULL") == "1" }

// FullRun skips the test unless the run is a full one. what is the reason, such as the time or the server
// that the test needs.
func FullRun(tb testing.TB, what string) {
	tb.Helper()
	if !Full() {
		tb.Skipf("OUTBOX_TEST_FULL=1 runs it: %s", what)
	}
}

// Missing skips the test because the machine lacks a requirement, which the message names. In a full run
// it fails the test.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if Full() {
		tb.Errorf(format, args...)
		tb.Fatal("OUTBOX_TEST_FULL=1 asks for it")
	}
	tb.Skipf(format, args...)
}

// Program returns the path of a program in PATH. If there is none, it calls [Missing].
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(tb, "no program %s: %v", name, err)
	}
	return path
}
