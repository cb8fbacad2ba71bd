package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// benchOptions are bench's own flags.
type benchOptions struct {
	load         bench.Load
	rates        []int
	duration     time.Duration
	runs         int
	partitions   int
	compression  string
	recvlogical  string
	asJSON, keep bool
}

func (a *app) bench() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the relay on your own Postgres and Kafka",
		Long: `Bench runs this program as a relay between your servers and measures it from outside: how fast it
empties a slot, side by side with pg_recvlogical, which only reads; how long a row takes from its
INSERT to a consumer, at fixed rates; what it needs of processor and memory; how long it takes to
start. A consumer checks every record in the same run: what is lost, repeated, out of order or
altered comes first in the result.

It works in a schema, a publication, slots and topics of its own, named outbox_cdc_bench_* and
outbox-cdc-bench-*, and drops them at the end, also after Ctrl-C. Of your configuration it uses how
the servers are reached and how Kafka is written to. The role needs REPLICATION and CREATE on the database.
It loads both servers as much as they bear: not for production hours.`,
		Example: `  outbox-cdc bench -c outbox-cdc.yaml
  outbox-cdc bench --dsn postgres://owner@db/app --brokers kafka-1:9092 --rows 1000000 --per-transaction 1000000
  outbox-cdc bench -c outbox-cdc.yaml --compression zstd --rate 500,5000 --json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "brokers")
	flags := cmd.Flags()
	flags.IntVar(&o.load.Rows, "rows", 200_000, "`rows` in the slot before it is drained")
	flags.IntVar(&o.load.PayloadBytes, "payload", 200, "`bytes` of JSON in each row")
	flags.IntVar(&o.load.PerTransaction, "per-transaction", 10, "`rows` in each transaction of the drain")
	flags.IntVar(&o.load.Keys, "keys", 1000, "distinct aggregates")
	flags.IntVar(&o.partitions, "partitions", 12, "partitions of the topic")
	flags.IntSliceVar(&o.rates, "rate", []int{100, 1000}, "transactions of one row per second, for latency; 0 for none")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "how long each rate is held")
	flags.IntVar(&o.runs, "runs", 3, "how often draining and starting are measured; medians are shown")
	flags.StringVar(&o.compression, "compression", "", "`codec` in place of sink.kafka.compression")
	flags.StringVar(&o.recvlogical, "pg-recvlogical", "", "`path` of pg_recvlogical, if it is in no usual place")
	flags.BoolVar(&o.asJSON, "json", false, "print the result as JSON")
	flags.BoolVar(&o.keep, "keep", false, "leave schema, publication and topics behind, and say how to drop them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return command.Usage(cmd, err)
		}
		return a.runBench(cmd.Context(), s, o)
	}
	return cmd
}

func (o *benchOptions) validate() error {
	o.rates = slices.DeleteFunc(o.rates, func(rate int) bool { return rate == 0 })
	switch {
	case o.runs < 1 || o.partitions < 1:
		return errors.New("--runs and --partitions are 1 or more")
	case slices.ContainsFunc(o.rates, func(rate int) bool { return rate < 0 }) || o.duration < time.Second:
		return errors.New("--rate cannot be negative, and --duration is 1s or more")
	}
	if err := o.load.Validate(); err != nil {
		return fmt.Errorf("--rows, --payload, --per-transaction, --keys: %w", err)
	}
	return nil
}

// runBench measures and prints. What was delivered wrongly is an error, too, after the result.
func (a *app) runBench(ctx context.Context, s *command.Settings, o benchOptions) error {
	var more []config.Setting
	if o.compression != "" {
		more = []config.Setting{{Key: "sink.kafka.compression", Value: o.compression, Flag: "--compression"}}
	}
	cfg, err := s.Load(a.environ, more...)
	if err != nil {
		return command.Failed(err)
	}
	place, err := a.benchPlace(cfg)
	if err != nil {
		return command.Failed(err)
	}
	log := command.NewLogger(cfg.Log, a.stderr)
	r := &benchRun{options: o, place: place, log: log, progress: command.NewProgress(a.stderr, a.environ, log)}
	result, err := r.run(ctx)
	r.progress.End()
	if err != nil {
		return place.failure(ctx, err)
	}
	if o.asJSON {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(result)
	} else {
		err = result.write(a.stdout)
	}
	if err != nil {
		return command.Failed(err)
	}
	if !result.Verdict.good() {
		return place.failure(ctx, errDelivered)
	}
	return nil
}

// errDelivered says the worst there is to say. The figures are on standard output.
var errDelivered = errors.New("what was delivered is not what was written")

// A benchPlace is where a bench takes place, and as whom.
type benchPlace struct {
	servers           bench.Servers
	replicationFactor int
	relay             bench.Relay
	floor             bench.PgRecvlogical
	source, brokers   string // for people
	compression       string
}

func (a *app) benchPlace(cfg *config.Config) (*benchPlace, error) {
	pg, err := cfg.Postgres()
	if err != nil {
		return nil, err
	}
	kafka, err := cfg.Kafka()
	if err != nil {
		return nil, err
	}
	conninfo, environ, err := cfg.Libpq()
	if err != nil {
		return nil, err
	}
	access, err := kafkaAccess(kafka)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// The configuration is in a file; variables would go before it.
	inherited := slices.DeleteFunc(slices.Clone(a.environ), func(v string) bool { return strings.HasPrefix(v, "OUTBOX_CDC_") })
	return &benchPlace{
		servers:           bench.Servers{DSN: string(cfg.Source.DSN), Postgres: pg, Brokers: kafka.Brokers, Kafka: access},
		replicationFactor: cfg.Sink.Kafka.CreateTopics.ReplicationFactor,
		relay:             bench.Relay{Path: exe, Environ: inherited, Settings: kafkaSettings(cfg.Sink.Kafka)},
		floor:             bench.PgRecvlogical{Conninfo: conninfo, Environ: append(inherited, environ...)},
		source:            command.Address(&pg.Config), brokers: strings.Join(kafka.Brokers, ","),
		compression: kafka.Compression,
	}, nil
}

// failure is the end of a bench without a result, or with one that must not be.
func (p *benchPlace) failure(ctx context.Context, err error) *command.Failure {
	f := command.Failed(err)
	f.Where = []string{"source: " + p.source, "sink: Kafka at " + p.brokers}
	if ctx.Err() != nil {
		f.Err, f.Exit, f.Next = fmt.Errorf("interrupted before everything was measured: %w", err), relay.ExitUnexpected, "start again"
		return f
	}
	if e, ok := errors.AsType[*bench.ServerError](err); ok {
		f.Exit, f.Advice, f.Object = relay.ExitSource, e.Advice, p.source
		if e.Kafka {
			f.Exit, f.Object = relay.ExitSink, "Kafka at "+p.brokers
		}
	}
	return f
}

// warnLeftovers says what benches have left behind that were killed.
func warnLeftovers(ctx context.Context, log *slog.Logger, servers bench.Servers) error {
	found, err := bench.FindLeftovers(ctx, servers)
	for _, l := range found {
		log.WarnContext(ctx, "left behind by an earlier bench", slog.String("object", l.Object), slog.String("drop", l.Drop))
	}
	return err
}
