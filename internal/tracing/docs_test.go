package tracing_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "write the examples into docs/tracing.md")

// TestDocs checks that the code in the documentation is the code that is compiled here, between the imports and the
// Example.
func TestDocs(t *testing.T) {
	for _, name := range []string{"writer", "consumer"} {
		source, err := os.ReadFile("example_" + name + "_test.go")
		if err != nil {
			t.Fatal(err)
		}
		_, code, _ := strings.Cut(string(source), "\n)\n\n")
		code, _, ok := strings.Cut(code, "\nfunc Example_")
		if !ok {
			t.Fatalf("no example in the file of the %s", name)
		}
		doctest.CheckPart(t, "../../docs/tracing.md", name, "```go\n"+code+"```\n", *update)
	}
}
