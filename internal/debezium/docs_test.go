package debezium

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

// TestDocumentation fails unless the page contains the mapping table.
func TestDocumentation(t *testing.T) {
	doctest.CheckPart(t, "../../docs/debezium-options.md", "options", optionTable(), *update)
}

// optionTable returns the mapping table. Consecutive keys with the same verdict and text share a row.
func optionTable() string {
	var out strings.Builder
	for _, g := range mappingTable() {
		fmt.Fprintf(&out, "\n## %s\n\n| Debezium | verdict | outbox-cdc | |\n|---|---|---|---|\n", g.title)
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
	return strings.TrimPrefix(out.String(), "\n")
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
