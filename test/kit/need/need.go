// Package need is for tests that need what a machine may lack: a server, a tool, a right.
package need

import (
	"os"
	"testing"
)

// Missing skips the test, saying what is not there; with OUTBOX_TEST_REQUIRED=1, as in CI,
// where no gap may hide behind a skip, it fails it.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("OUTBOX_TEST_REQUIRED") == "1" { //nolint:forbidigo // a setting of the test run
		tb.Errorf(format, args...)
		tb.Fatal("OUTBOX_TEST_REQUIRED=1 asks for it")
	}
	tb.Skipf(format, args...)
}
