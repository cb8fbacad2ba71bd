package debezium

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentation fails unless the page contains the mapping table.
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

// optionTable returns the mapping table. Consecutive keys with the same verdict and text share a row.
func optionTable() string {
	var out strings.Builder
	for _, g := range mappingTable() {
		fmt.Fprintf(&out, "\n### %s\n\n| Debezium | verdict | outbox-cdc | |\n|---|---|---|---|\n", g.title)
		keys, rest := "", ""
		for _, r := range g.rules {
			if cells := optionCells(r); cells == rest {
				keys += ", `" + r.key + "`"
			} else {
				if keys != "" {
					out.WriteString("| " + keys + rest)
				}
				keys, rest = "`"+r.key+"`", cells
			}
		}
		out.WriteString("| " + keys + rest)
	}
	return out.String() + "\n"
}

// optionCells returns the cells of a row after the key.
func optionCells(r rule) string {
	var verdicts []string
	for _, v := range r.verdicts {
		verdicts = append(verdicts, string(v))
	}
	ours := ""
	if r.ours != "" {
		ours = "`" + r.ours + "`"
	}
	return fmt.Sprintf(" | %s | %s | %s |\n", strings.Join(verdicts, ", "), ours, strings.ReplaceAll(r.doc, "|", `\|`))
}
