package catalog

import (
	"strings"
	"testing"
)

// The error about a missing table has its name as the configuration does, and a command that a shell reads.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		`outbox`:         {`table "outbox" does not exist`, `--table outbox`},
		`"Sales".outbox`: {`table "Sales".outbox does not exist`, `--table '"Sales".outbox'`},
		`"it's"`:         {`table "it's" does not exist`, `--table '"it'\''s"'`},
	} {
		o := Outbox{Configured: name}
		got := o.verify("app").Error()
		if !strings.Contains(got, want[0]) || !strings.Contains(got, want[1]+"; if that says") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
