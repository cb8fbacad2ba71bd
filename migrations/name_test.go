package migrations

import (
	"strings"
	"testing"
)

func TestParseTable(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for in, want := range map[string]string{
		"outbox":          "outbox",
		"App.OutBox":      "app.outbox",
		`"App"."Out""b."`: `"App"."Out""b."`,
		`app."Outbox"`:    `app."Outbox"`,
		long:              long,
		"":                "",
		".":               "",
		"app.":            "",
		"a.b.c":           "",
		"out box":         "",
		"out;box":         "",
		`"outbox`:         "",
		`""`:              "",
		`"a"b`:            "",
		"1outbox":         "",
		long + "x":        "",
	} {
		got, err := parseTable(in)
		if err != nil {
			got = tableName{}
		}
		if got.String() != want || (err != nil) != (want == "") {
			t.Errorf("parseTable(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestPartitionedNamesLeaveRoomForWhatIsNamedAfterThem(t *testing.T) {
	fits := strings.Repeat("x", maxName-len("_create_partitions"))
	if err := (Config{Table: fits, Partitioned: true}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Table: fits + "x", Partitioned: true}).Validate(); err == nil {
		t.Error("a name that is one byte too long was accepted")
	}
}
