package demo

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// Main runs the command line args of outbox-cdc-demo, which do not include the program's name, and returns the exit code.
// From environ it reads variables that describe the terminal. When ctx ends, the demo stops cleanly.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, Command(environ, stdout, stderr), args, stdout, stderr) //nolint:contextcheck // cobra hands ctx to what runs
}

// Command returns the program's command.
func Command(environ []string, stdout, stderr io.Writer) *cobra.Command {
	options := Options{
		Term: command.Getenv(environ, "TERM"), NoColor: command.Getenv(environ, "NO_COLOR") != "",
		Version: command.Version().Module,
	}
	root := &cobra.Command{
		Use:   "outbox-cdc-demo",
		Short: "Run the relay with Postgres, Kafka, a writer and a consumer, in one process",
		Long: `outbox-cdc-demo runs a private Postgres, an in-process Kafka, a small order service that writes outbox
rows, the relay, and a consumer that checks every record. It shows what happens, and prints the address of
the relay's live page. Nothing needs to be installed, and the demo removes what it creates. Use --dsn and
--brokers for real servers.

The demo stops after --for, or when you press Ctrl-C, and then prints what was written and what arrived.`,
		Example: `  outbox-cdc-demo --for 20s
  outbox-cdc-demo --brokers localhost:9092`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.For < 0 || options.Rate < 0 {
				return command.Usage(cmd, errors.New("--for and --rate must not be negative"))
			}
			if err := Run(cmd.Context(), options, stdout, stderr); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
	flags := root.Flags()
	flags.SortFlags = false
	flags.DurationVar(&options.For, "for", 0, "run for this time (0: until Ctrl-C)")
	flags.IntVar(&options.Rate, "rate", 0, "transactions per second (0: 200)")
	flags.StringVar(&options.DSN, "dsn", "", "use this Postgres: a libpq `conninfo`")
	flags.StringSliceVar(&options.Brokers, "brokers", nil, "use this Kafka cluster: brokers as `host:port`")
	return root
}
