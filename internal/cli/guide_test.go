package cli

import (
	"io"
	"os"
	"strings"
	"testing"
)

// Every command in the guide for people who come from Debezium is one, with flags that exist.
func TestMigrationGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migrating-from-debezium.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(guide)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		line = os.Expand(line, func(string) string { return "" })
		command, ok := strings.CutPrefix(line, "outbox-cdc ")
		if !ok {
			continue
		}
		n++
		root := (&app{stdout: io.Discard, stderr: io.Discard}).root()
		cmd, args, err := root.Find(strings.Fields(command))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil && cmd.Args != nil {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		if err != nil || !cmd.Runnable() {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n < 8 {
		t.Errorf("%d commands", n)
	}
}
