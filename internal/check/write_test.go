package check_test

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/check"
)

func TestWriteText(t *testing.T) {
	conditions := []check.Condition{
		{Group: check.Source, Name: "wal_level", State: check.Met, Found: "logical"},
		{Group: check.Source, Name: "open transactions", State: check.Doubt, Found: "prepared transaction \"x\n\x1b[2J\" is open", Fix: "end it"},
		{Group: check.Sink, Name: "topic", Object: strings.Repeat("t", 60), State: check.Failed, Found: "does not exist", Fix: "create it"},
	}
	const indent = "                                                   "
	want := "source\n" +
		"ok       wal_level                                 logical\n" +
		"warning  open transactions                         prepared transaction \\\"x\\n\\x1b[2J\\\" is open\n" +
		indent + "→ end it\n" +
		"\nsink\n" +
		"fails    topic " + strings.Repeat("t", 60) + "  does not exist\n" +
		indent + "→ create it\n"
	var got strings.Builder
	if err := check.WriteText(&got, conditions); err != nil || got.String() != want {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, got.String(), want)
	}
	if n := check.Count(conditions); n != 1 {
		t.Errorf("%d conditions fail", n)
	}
}
