package check_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/check"
	"github.com/outbox-cdc/outbox-cdc/test/kit/docpart"
)

var update = flag.Bool("update", false, "rewrite docs/check.md")

// TestDocs: the page has every condition.
func TestDocs(t *testing.T) {
	var want strings.Builder
	group := ""
	for _, d := range check.Definitions() {
		if d.Group != group {
			group = d.Group
			fmt.Fprintf(&want, "### %s\n\n| condition | of each | asks | run |\n|---|---|---|---|\n", group)
		} else if d.Group == "" {
			t.Errorf("%+v", d)
		}
		run := ""
		if d.AtStart {
			run = "yes"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", d.Name, d.Object, d.Asks, run)
	}
	text := strings.Replace(want.String(), "### sink", "\n### sink", 1)
	docpart.Check(t, "../../docs/check.md", "conditions", text, *update)
}
