package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/demo"
)

func (a *app) demo() *cobra.Command {
	var options demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole path, live, in one process",
		Long: `Demo runs a Postgres, a Kafka-compatible broker, a small order service that writes outbox rows, the
relay, and a consumer that checks every record it gets, and prints what happens, also the address of the
relay's live page. Nothing needs to be installed and nothing stays behind. --dsn and --brokers put real servers in place of the built-in ones.

It ends by itself after --for, or with SIGINT, and then says what was written and what arrived.`,
		Example: `  outbox-cdc demo --for 20s
  outbox-cdc demo --brokers localhost:9092`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.For < 0 || options.Rate < 0 {
				return command.Usage(cmd, errors.New("--for and --rate cannot be negative"))
			}
			options.Version = command.Version().Module
			options.Term, options.NoColor = command.Getenv(a.environ, "TERM"), command.Getenv(a.environ, "NO_COLOR") != ""
			if err := demo.Run(cmd.Context(), options, a.stdout, a.stderr); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&options.For, "for", 0, "how long to run; 0 is until SIGINT")
	flags.IntVar(&options.Rate, "rate", 0, "transactions per second; 0 is 200")
	flags.StringVar(&options.DSN, "dsn", "", "use the Postgres this `conninfo` leads to")
	flags.StringSliceVar(&options.Brokers, "brokers", nil, "use the Kafka cluster of these brokers (`host:port`)")
	return cmd
}
