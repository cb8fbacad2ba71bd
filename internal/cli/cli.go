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
only after the broker has acknowledged every earlier record.`,
		Example: `  outbox-cdc migrate up --dsn postgres://owner@db/app
  outbox-cdc check -c outbox-cdc.yaml
  outbox-cdc run -c outbox-cdc.yaml`,
	}
	root.AddCommand(a.run(), a.migrate(), a.setup(), a.importFrom(), a.check(), a.status(), a.healthcheck(), a.tail(), a.audit(), a.deadLetter(), a.replay(), a.recover(), a.prune(), a.inbox(), a.config(), a.version())
	return root
}
