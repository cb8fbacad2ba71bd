package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// maxInput is the size of the largest file that import reads.
const maxInput = 16 << 20

func (a *app) importFrom() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Make a configuration of another program's",
		Long:  `Import makes a configuration of that of the program which relays the outbox so far.`,
		Args:  command.Group,
		RunE:  command.Group,
	}
	cmd.AddCommand(a.importDebezium())
	return cmd
}

// An importing is one run of import debezium.
type importing struct {
	*app
	worker, offsets, output, dsn string
	brokers, messages            []string
	exact, unknown, live, plan   bool
}

func (a *app) importDebezium() *cobra.Command {
	i := &importing{app: a}
	cmd := &cobra.Command{
		Use:   "debezium file",
		Short: "Make a configuration of a Debezium connector's",
		Long: `Debezium reads the configuration of Debezium's PostgreSQL connector with its outbox event router
and writes one with which outbox-cdc makes the same records, to standard output or to -o. What
becomes of every key is reported on standard error: 1:1 the same, PART with a difference, NOTE
not needed, REJ refused. If anything is refused the exit code is 2, and nothing is written.

It takes what Kafka Connect's REST interface takes and returns, properties, a Strimzi
KafkaConnector, and Debezium Server's properties or environment; - is standard input. What the
connector leaves to its Connect worker, converters and brokers, is read from --worker.

The database is asked where only it can answer: with --dsn or --live, and for lists of tables that
are regular expressions. --dsn and --live also print the records of the last rows.`,
		Example: `  outbox-cdc import debezium connector.json --worker connect-distributed.properties -o outbox-cdc.yaml
  curl -s connect:8083/connectors/orders-outbox | outbox-cdc import debezium - --worker worker.properties --exact
  outbox-cdc import debezium connector.json --rollback-plan`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("a file is needed, or - for standard input")
			}
			return command.NoArgs(cmd, args[1:])
		},
		RunE: func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args[0], cmd.InOrStdin()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&i.worker, "worker", "", "properties `file` of the Connect worker, or a Strimzi KafkaConnect: converters, brokers, settings of producers")
	flags.StringVar(&i.offsets, "offsets", "", "stored offsets: a `file` with the answer to GET /connectors/<name>/offsets, or the worker's own")
	flags.StringSliceVar(&i.brokers, "brokers", nil, "Kafka brokers, `host:port` separated by commas, instead of the worker's")
	flags.StringSliceVar(&i.messages, "messages", nil, "`prefix` of the logical messages that hold rows, where the connector takes all")
	flags.BoolVar(&i.exact, "exact", false, "keep all bytes: the headers __debezium.context.…, and refuse rows that Debezium damages")
	flags.BoolVar(&i.unknown, "allow-unknown", false, "leave out keys that are not known, instead of refusing them")
	flags.StringVar(&i.dsn, "dsn", "", "ask this database: a libpq `conninfo`")
	flags.BoolVar(&i.live, "live", false, "ask the connector's own database")
	flags.StringVarP(&i.output, "output", "o", "", "`file` to write the configuration to, readable by its owner only")
	flags.BoolVar(&i.plan, "rollback-plan", false, "print how to go back to Debezium, and nothing else")
	return cmd
}

func (i *importing) run(ctx context.Context, name string, stdin io.Reader) error {
	data, err := readInput(name, stdin)
	if err != nil {
		return mistake(err)
	}
	in, err := debezium.Parse(data)
	if err != nil {
		return mistake(fmt.Errorf("%s: %w", name, err))
	}
	opts, err := i.options(in)
	if err != nil {
		return mistake(err)
	}
	conn, err := i.ask(ctx, in, &opts)
	if err != nil {
		return err
	}
	result, err := debezium.Import(in, opts)
	if err != nil {
		return mistake(fmt.Errorf("%s: %w", i.worker, err))
	}
	if i.plan {
		_, err := result.RollbackPlan().WriteTo(i.stdout)
		return err
	}
	if _, err := result.Report.WriteTo(i.stderr); err != nil {
		return err
	}
	if refused := result.Report.Refused(); len(refused) > 0 {
		return &command.ExitError{
			Err: fmt.Errorf("%s cannot be carried over: %d refused", name, len(refused)), Exit: relay.ExitUsage,
			Next: "what each line above says, or keep Debezium for this connector",
		}
	}
	if i.live || i.dsn != "" {
		if err := i.preview(ctx, result, conn); err != nil {
			return err
		}
	}
	return i.write(result)
}

// options reads the files beside the configuration.
func (i *importing) options(in *debezium.Input) (opts debezium.Options, err error) {
	opts = debezium.Options{Brokers: i.brokers, Messages: i.messages, Exact: i.exact, AllowUnknown: i.unknown}
	if i.worker != "" {
		if opts.Worker, err = readInput(i.worker, nil); err != nil {
			return opts, err
		}
	}
	if i.offsets != "" {
		if opts.Offset, err = readOffset(i.offsets, in.Prefix(), in.Name); err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// ask has the database say what only it can. It returns how it was reached; nil: it was not.
func (i *importing) ask(ctx context.Context, in *debezium.Input, opts *debezium.Options) (*pgx.ConnConfig, error) {
	dsn, known := i.dsn, true
	if dsn == "" {
		if !i.live && !debezium.NeedsDatabase(in) {
			return nil, nil //nolint:nilnil // nil is said to mean that the database was not asked
		}
		if dsn, known = debezium.Source(in); !known && i.live {
			return nil, mistake(errors.New("the connector's database is known to Kafka Connect only: give --dsn"))
		}
	}
	if !known {
		return nil, nil //nolint:nilnil // the report says what is not known without it
	}
	cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "source.dsn", Value: dsn, Flag: "--dsn"}}})
	if err != nil {
		return nil, command.Failed(err)
	}
	conn, err := cfg.Postgres()
	if err == nil {
		opts.Live, err = debezium.Ask(ctx, conn)
	}
	if err != nil && !i.live && i.dsn == "" { // nobody has asked for it: the report says what is missing
		opts.Unreachable = err
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		f := command.Failed(err)
		if conn != nil {
			f.Where = []string{"source: " + command.Address(&conn.Config)}
		}
		return nil, f
	}
	return conn, nil
}

// write writes the configuration where it is wanted.
func (i *importing) write(result *debezium.Result) error {
	if i.output == "" {
		_, err := i.stdout.Write(result.YAML)
		return err
	}
	if err := writeSecret(i.output, result.YAML); err != nil {
		return mistake(err)
	}
	fmt.Fprintf(i.stderr, "\nnext: outbox-cdc check --takeover -c %s, and outbox-cdc run -c %s\n", i.output, i.output)
	return nil
}

// writeSecret writes a file that only its owner may read, also if it was there and others could.
func writeSecret(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // which file is the operator's choice
	if err != nil {
		return err
	}
	if err = file.Chmod(0o600); err == nil {
		_, err = file.Write(data)
	}
	return errors.Join(err, file.Close())
}

// readInput reads a file; - is standard input where there is one.
func readInput(name string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if name != "-" || stdin == nil {
		file, err := os.Open(name) //nolint:gosec // which file is the operator's choice
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxInput)
	}
	return data, err
}

// readOffset reads the stored offset of a connector.
func readOffset(file, prefix, connector string) (*debezium.Offset, error) {
	data, err := readInput(file, nil)
	if err != nil {
		return nil, err
	}
	offsets, err := debezium.ParseOffsets(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	offset, err := offsets.Of(prefix, connector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return offset, nil
}

// mistake is the failure of a wrong input.
func mistake(err error) *command.ExitError {
	return &command.ExitError{Err: err, Exit: relay.ExitUsage}
}
