package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// Main runs the command line args, without the program's name, and returns the exit code.
// Of environ only the OUTBOX_CDC_ variables are looked at, those that the configuration file refers
// to, and what describes the terminal; libpq's
// PG* variables are those of the process. When ctx is done, what runs stops cleanly.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	a := &app{environ: environ, stdout: stdout, stderr: stderr}
	return command.Run(ctx, a.root(), args, stdout, stderr) //nolint:contextcheck // cobra hands ctx to what runs
}

// An app is what every verb needs.
type app struct {
	environ        []string
	stdout, stderr io.Writer
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-cdc",
		Short: "Relay a Postgres outbox table to Kafka",
		Long: `outbox-cdc tails the write-ahead log of Postgres through a logical replication slot,
turns each committed row of an outbox table into a Kafka record keyed by its aggregate,
and confirms a position only after Kafka has acknowledged everything up to it.`,
		Example: `  outbox-cdc setup -c outbox-cdc.yaml
  outbox-cdc run -c outbox-cdc.yaml`,
	}
	root.AddCommand(a.run(), a.migrate(), a.setup(), a.importFrom(), a.check(), a.status(), a.healthcheck(), a.tail(), a.deadLetter(), a.replay(), a.prune(), a.inbox(), a.config(), a.version())
	return root
}
