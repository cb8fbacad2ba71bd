package check

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "rewrite docs/check.md")

// TestDocs: the page lists every condition.
func TestDocs(t *testing.T) {
	var want strings.Builder
	group := ""
	for _, d := range definitions() {
		if d.group != group {
			group = d.group
			fmt.Fprintf(&want, "### %s\n\n| condition | for each | met if | also by run |\n|---|---|---|---|\n", group)
		} else if d.group == "" {
			t.Errorf("%+v", d)
		}
		run := ""
		if d.atStart {
			run = "yes"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", d.name, d.object, d.met, run)
	}
	text := strings.TrimPrefix(strings.ReplaceAll(want.String(), "### ", "\n### "), "\n")
	doctest.CheckPart(t, "../../docs/check.md", "conditions", text, *update)
}
