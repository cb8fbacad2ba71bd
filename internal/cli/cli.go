package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// Main runs the command line args, which do not include the program's name, and returns the exit code. From
// environ it reads variables with the prefix OUTBOX_CDC_, those that the configuration file refers to, and those that
// describe the terminal. libpq's PG* variables come from the process. When ctx ends, the command stops cleanly.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	a := &app{environ: environ, stdout: stdout, stderr: stderr}
	return command.Run(ctx, a.root(), args, stdout, stderr) //nolint:contextcheck // cobra hands ctx to what runs
}

// An app runs the commands.
type app struct {
	environ        []string
	stdout, stderr io.Writer
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-cdc",
		Short: "Relay a Postgres outbox table to Kafka or another broker",
		Long: `outbox-cdc reads the write-ahead log of Postgres through a logical replication slot, sends a
record for each committed row of an outbox table to Kafka or another broker, and advances the slot
only after the broker has acknowledged every earlier record.

Documentation of this version: ` + command.Version().Docs(),
		Example: `  outbox-cdc migrate up --dsn postgres://owner@db/app
  outbox-cdc check -c outbox-cdc.yaml
  outbox-cdc run -c outbox-cdc.yaml`,
	}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"setup", "Set up:", []*cobra.Command{a.migrate(), a.setup(), a.check(), a.config(), a.importFrom()}},
		{"run", "Run:", []*cobra.Command{a.run(), a.healthcheck(), a.prune()}},
		{"inspect", "Inspect:", []*cobra.Command{a.status(), a.tail(), a.audit()}},
		{"repair", "Repair:", []*cobra.Command{a.recover(), a.deadLetter(), a.replay(), a.inbox()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(a.version())
	return root
}
