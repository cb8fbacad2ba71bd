package debezium

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The documentation has every key of the mapping table.
func TestDocumentation(t *testing.T) {
	const path, begin, end = "../../docs/migrating-from-debezium.md", "<!-- options: go test ./internal/debezium -update -->\n", "<!-- end of options -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("the documentation has no place for the table")
	}
	want := optionTable()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is out of date: go test ./internal/debezium -update (-want +got):\n%s", path, diff)
	}
}

func optionTable() string {
	var out strings.Builder
	for _, g := range mappingTable() {
		fmt.Fprintf(&out, "\n### %s\n\n| Debezium | verdict | outbox-cdc | |\n|---|---|---|---|\n", g.title)
		for _, r := range g.rules {
			var verdicts []string
			for _, v := range r.verdicts {
				verdicts = append(verdicts, string(v))
			}
			ours := ""
			if r.ours != "" {
				ours = "`" + r.ours + "`"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.key, strings.Join(verdicts, ", "), ours, strings.ReplaceAll(r.doc, "|", `\|`))
		}
	}
	return out.String() + "\n"
}
