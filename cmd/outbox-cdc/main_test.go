package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The production binary contains no test servers, and only one Kafka client.
func TestNothingOfTheTestsIsLinked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages", len(packages))
	}
	const ours = "github.com/outbox-cdc/outbox-cdc/"
	for _, denied := range []string{
		"github.com/fergusstrange/embedded-postgres", "github.com/lib/pq", // embedded Postgres
		"github.com/twmb/franz-go", // kfake and a second client
		"testing",                  // production code does not need it
		ours + "test", ours + "inbox/inboxfranz", ours + "inbox/inboxnats", ours + "inbox/inboxrabbit", ours + "inbox/inboxredis",
		ours + "internal/demo", ours + "internal/bench",
	} {
		for _, path := range packages {
			if path == denied || strings.HasPrefix(path, denied+"/") {
				t.Errorf("%s is linked", path)
			}
		}
	}
}
