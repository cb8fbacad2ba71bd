package demo

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// Main runs the command line args of outbox-cdc-demo, without the program's name, and returns the exit
// code. Of environ it reads what describes the terminal. When ctx is done, the demo stops cleanly.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, Command(environ, stdout, stderr), args, stdout, stderr) //nolint:contextcheck // cobra hands ctx to what runs
}

// Command returns the program's command line.
func Command(environ []string, stdout, stderr io.Writer) *cobra.Command {
	options := Options{
		Term: command.Getenv(environ, "TERM"), NoColor: command.Getenv(environ, "NO_COLOR") != "",
		Version: command.Version().Module,
	}
	root := &cobra.Command{
		Use:   "outbox-cdc-demo",
		Short: "Show the whole path, live, in one process",
		Long: `outbox-cdc-demo runs a Postgres, a Kafka-compatible broker, a small order service that writes outbox rows, the
relay, and a consumer that checks every record it gets, and prints what happens, also the address of the
relay's live page. Nothing needs to be installed and nothing stays behind. --dsn and --brokers put real servers in place of the built-in ones.

It ends by itself after --for, or with SIGINT, and then says what was written and what arrived.`,
		Example: `  outbox-cdc-demo --for 20s
  outbox-cdc-demo --brokers localhost:9092`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.For < 0 || options.Rate < 0 {
				return command.Usage(cmd, errors.New("--for and --rate cannot be negative"))
			}
			if err := Run(cmd.Context(), options, stdout, stderr); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
	flags := root.Flags()
	flags.SortFlags = false
	flags.DurationVar(&options.For, "for", 0, "how long to run; 0 is until SIGINT")
	flags.IntVar(&options.Rate, "rate", 0, "transactions per second; 0 is 200")
	flags.StringVar(&options.DSN, "dsn", "", "use the Postgres this `conninfo` leads to")
	flags.StringSliceVar(&options.Brokers, "brokers", nil, "use the Kafka cluster of these brokers (`host:port`)")
	return root
}
