package need_test

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// An outcome records whether a test failed or was skipped.
type outcome struct {
	testing.TB
	failed, skipped bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Errorf(string, ...any) { o.failed = true }
func (o *outcome) Fatal(...any)          { o.failed = true }
func (o *outcome) Skipf(string, ...any)  { o.skipped = !o.failed }

// A missing requirement fails the test in a full run and skips it in any other. FullRun skips only
// outside a full run.
func TestFullRunSkipsNothing(t *testing.T) {
	for setting, full := range map[string]bool{"": false, "0": false, "1": true} {
		t.Setenv("OUTBOX_TEST_FULL", setting)
		var missing, program, long outcome
		need.Missing(&missing, "nothing")
		need.Program(&program, "no-program-of-this-name")
		need.FullRun(&long, "an hour")
		want := outcome{failed: full, skipped: !full}
		if missing != want || program != want {
			t.Errorf("OUTBOX_TEST_FULL=%q: missing %+v, program %+v, want %+v", setting, missing, program, want)
		}
		if long != (outcome{skipped: !full}) {
			t.Errorf("OUTBOX_TEST_FULL=%q: long %+v", setting, long)
		}
	}
}
