package relay

import (
	"errors"
	"testing"
	"time"
)

func TestFailuresAreFew(t *testing.T) {
	var f failures
	now := time.Unix(1_700_000_000, 0)
	f.add(errors.New("read from port 5432"), now)
	f.add(errors.New("read from port 5433"), now.Add(time.Minute))
	if len(f) != 1 || f[0].Times != 2 || f[0].Text != "read from port 5433" || f[0].Last.Sub(f[0].First) != time.Minute || f[0].ExitCode != ExitUnexpected {
		t.Errorf("a repeated failure: %+v", f)
	}
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		f.add(errors.New(text), now)
	}
	if len(f) != keptFailures || f[0].Text != "b" || f[keptFailures-1].Text != "i" {
		t.Errorf("kept: %+v", f)
	}
	var gap failures
	gap.add(errRecord, now)
	if gap[0].ExitCode != ExitContinuity || gap[0].Advice == "" {
		t.Errorf("no advice: %+v", gap[0])
	}
}
