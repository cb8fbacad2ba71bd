package check

import (
	"strings"
	"testing"
)

func TestWriteText(t *testing.T) {
	conditions := []Condition{
		{Group: Source, Name: "wal_level", State: Met, Found: "logical"},
		{Group: Source, Name: "open transactions", State: Doubt, Found: "prepared transaction \"x\n\x1b[2J\" is open", Fix: "end it"},
		{Group: Sink, Name: "topic", Object: strings.Repeat("t", 60), State: Failed, Found: "does not exist", Fix: "create it"},
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
	if err := WriteText(&got, conditions); err != nil || got.String() != want {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, got.String(), want)
	}
	if n := Count(conditions); n != 1 {
		t.Errorf("%d conditions fail", n)
	}
}
