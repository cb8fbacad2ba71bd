package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
		Version: command.Version().Module, Docs: command.Version().Docs(),
	}
	root := &cobra.Command{
		Use:   "outbox-cdc-demo",
		Short: "Run the relay with Postgres, a broker, a writer and a consumer, in one process",
		Long: `outbox-cdc-demo runs a private Postgres, a broker, a small order service that writes outbox rows, the
relay, and a consumer that checks every record. It shows what happens, and prints the address of the
relay's live page. With Kafka, NATS JetStream and webhooks, nothing needs to be installed. The demo
removes what it creates. Use --dsn and --brokers for real servers.

With --chaos, the relay and a standby are processes of their own. Every few seconds the demo kills the
one that streams (kill -9), freezes it (SIGSTOP) until the standby has taken over, or cuts the
connections to Postgres or Kafka. It exits with 1 if a row is lost, out of order or in Kafka twice.
--chaos needs Kafka, and Linux or macOS. It does not cut connections to servers of --dsn and --brokers.

The demo stops after --for, or when you press Ctrl-C, and then prints what was written and what arrived.

Kinds of brokers (--sink):
` + kindsHelp(),
		Example: `  outbox-cdc-demo --for 20s
  outbox-cdc-demo --chaos --for 1m
  outbox-cdc-demo --sink jetstream
  outbox-cdc-demo --brokers localhost:9092`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.For < 0 || options.Rate < 0 {
				return command.Usage(cmd, errors.New("--for and --rate must not be negative"))
			}
			if _, err := findKind(options); err != nil {
				return command.Usage(cmd, err)
			}
			switch err := Run(cmd.Context(), options, stdout, stderr); {
			case errors.Is(err, errNotInstalled):
				return command.Usage(cmd, err)
			case err != nil:
				return command.Failed(err)
			}
			return nil
		},
	}
	flags := root.Flags()
	flags.SortFlags = false
	flags.DurationVar(&options.For, "for", 0, "run for this time (0: until Ctrl-C)")
	flags.IntVar(&options.Rate, "rate", 0, "transactions per second (0: 200)")
	flags.BoolVar(&options.Chaos, "chaos", false, "kill and freeze the relay, and cut its connections, every few seconds")
	flags.StringVar(&options.DSN, "dsn", "", "use this Postgres: a libpq `conninfo`")
	flags.StringVar(&options.Sink, "sink", "kafka", "`kind` of broker: "+strings.Join(kindNames(), ", "))
	flags.StringSliceVar(&options.Brokers, "brokers", nil, "use this broker: its servers as `host:port`")
	return root
}

// kindsHelp returns a line about each kind of broker.
func kindsHelp() string {
	var b strings.Builder
	for _, k := range kinds() {
		fmt.Fprintf(&b, "  %-14s %s: %s\n", k.name, k.title, k.from)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
