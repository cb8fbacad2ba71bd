package need_test

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// An outcome notes what becomes of a test.
type outcome struct {
	testing.TB
	failed, skipped bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Errorf(string, ...any) { o.failed = true }
func (o *outcome) Fatal(...any)          { o.failed = true }
func (o *outcome) Skipf(string, ...any)  { o.skipped = true }

func TestMissing(t *testing.T) {
	for required, fails := range map[string]bool{"": false, "0": false, "1": true} {
		t.Setenv("OUTBOX_TEST_REQUIRED", required)
		o := new(outcome)
		need.Missing(o, "nothing")
		if o.failed != fails || !fails && !o.skipped {
			t.Errorf("OUTBOX_TEST_REQUIRED=%q: %+v", required, o)
		}
	}
}
