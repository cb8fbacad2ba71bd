package bench

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// Main runs the command line args of outbox-cdc-bench, without the program's name, and returns the exit
// code. environ is what the configuration, the relay and pg_recvlogical are given. When ctx is done, what
// was made on the servers is dropped and what was measured is printed.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, Command(environ, stdout, stderr), args, stdout, stderr) //nolint:contextcheck // cobra hands ctx to what runs
}

// Command returns the program's command line.
func Command(environ []string, stdout, stderr io.Writer) *cobra.Command {
	s := &settings{environ: environ}
	root := &cobra.Command{
		Use:   "outbox-cdc-bench",
		Short: "Measure the relay on your own Postgres and broker",
		Long: `outbox-cdc-bench runs the relay between your servers and measures it from outside: how fast it empties a
slot, side by side with pg_recvlogical, which only reads, and with client-library, which publishes the same
rows with the broker's usual library; how long a row takes from its INSERT to a consumer, at fixed rates;
what it needs of processor and memory; how long it takes to start. A consumer checks every record in the
same run: the report begins with what is lost, duplicate, out of order or altered.

On your servers it works in a schema, a publication, slots and destinations of its own, named
outbox_cdc_bench_* and outbox-cdc-bench-*, and drops them at the end, also after Ctrl-C. It uses your
configuration only to reach the servers and to write to the broker. The role needs REPLICATION and CREATE on
the database. It loads both servers as much as they bear: not for production hours. With webhooks, the
benchmark is the receiver: sink.webhook.url must be a free port of this machine.

With --own-servers it starts a Postgres and a broker for the measurement, except where --dsn or --brokers
names one. Postgres is the installed one or is fetched once. --sink says which broker. NATS JetStream and the
receiver of webhooks are part of this program; RabbitMQ and Redis must be installed. Kafka, ElasticMQ (for
SQS) and --debezium need Java 17 and Maven; they are fetched once (90 MB).

--outage takes the broker away from the relay while rows are written, and measures the relay's memory.

It measures the outbox-cdc given by --relay; without --relay the one in its own directory, or a build of the
source tree it is run in, or the one in PATH.

Suites:
` + suiteList(),
		Example: `  outbox-cdc-bench -c outbox-cdc.yaml
  outbox-cdc-bench --dsn postgres://owner@db/app --brokers kafka-1:9092 --rows 1000000 --per-transaction all
  outbox-cdc-bench -c outbox-cdc.yaml --compression zstd --rate 500,5000 --json result.json
  outbox-cdc-bench --own-servers --suite drain --debezium
  outbox-cdc-bench --own-servers --sink jetstream --rate 1000 --outage 30s
  outbox-cdc-bench --own-servers --relay before=/tmp/outbox-cdc --relay bin/outbox-cdc --match '200 B, 10 ' --runs 7`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.validate(); err != nil {
				return command.Usage(cmd, err)
			}
			return s.run(cmd.Context(), stdout, stderr)
		},
	}
	s.flags(root)
	root.AddCommand(writeCommand(environ, stdout, stderr), publishCommand(environ), natsCommand())
	return root
}
