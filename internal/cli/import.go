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

// maxInput is the maximum size of a file that import reads.
const maxInput = 16 << 20

func (a *app) importFrom() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert another tool's configuration",
		Long:  `Import converts the configuration of the tool that has relayed the outbox so far.`,
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
		Short: "Convert the configuration of a Debezium connector",
		Long: `Debezium reads the configuration of a Debezium PostgreSQL connector with the outbox event router, and
writes a configuration with which outbox-cdc produces the same records, to standard output or the file
of -o. For each key it reports on standard error: 1:1 (same), PART (with a difference), NOTE (not needed)
or REJ (rejected). If a key is rejected, it writes nothing and exits with 2.

The file may be JSON as in Kafka Connect's REST API, properties, a Strimzi KafkaConnector, or the
properties or environment of Debezium Server; - is standard input. Converters and brokers that the
connector inherits come from the Connect worker: pass its properties with --worker.

With --dsn or --live, debezium connects to the database and also prints the records of the last rows. It
also connects if the connector's list of tables is a regular expression.`,
		Example: `  outbox-cdc import debezium connector.json --worker connect-distributed.properties -o outbox-cdc.yaml
  curl -s connect:8083/connectors/orders-outbox | outbox-cdc import debezium - --worker worker.properties --exact
  outbox-cdc import debezium connector.json --rollback-plan`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a file, or - for standard input")
			}
			return command.NoArgs(cmd, args[1:])
		},
		RunE: func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args[0], cmd.InOrStdin()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&i.worker, "worker", "", "properties `file` of the Connect worker, or a Strimzi KafkaConnect: converters, brokers, producer settings")
	flags.StringVar(&i.offsets, "offsets", "", "stored offsets: a `file` with the response of GET /connectors/<name>/offsets, or a worker's offset file")
	flags.StringSliceVar(&i.brokers, "brokers", nil, "Kafka brokers instead of the worker's, `host:port` separated by commas")
	flags.StringSliceVar(&i.messages, "messages", nil, "`prefix` of the logical messages that contain rows, if the connector reads all")
	flags.BoolVar(&i.exact, "exact", false, "produce the same bytes: add headers __debezium.context.…, and reject rows whose values Debezium damages")
	flags.BoolVar(&i.unknown, "allow-unknown", false, "ignore unknown keys instead of rejecting them")
	flags.StringVar(&i.dsn, "dsn", "", "connect to this database: a libpq `conninfo`")
	flags.BoolVar(&i.live, "live", false, "connect to the connector's database")
	flags.StringVarP(&i.output, "output", "o", "", "`file` for the configuration, readable only by its owner")
	flags.BoolVar(&i.plan, "rollback-plan", false, "print only how to return to Debezium")
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
			Err: fmt.Errorf("%s cannot be converted: %d keys are rejected", name, len(refused)), Exit: relay.ExitUsage,
			Next: "see each REJ line above, or keep Debezium for this connector",
		}
	}
	if i.live || i.dsn != "" {
		if err := i.preview(ctx, result, conn); err != nil {
			return err
		}
	}
	return i.write(result)
}

// options reads the files of --worker and --offsets.
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

// ask reads from the database what the conversion needs. It returns the connection's configuration, nil if it did not
// connect.
func (i *importing) ask(ctx context.Context, in *debezium.Input, opts *debezium.Options) (*pgx.ConnConfig, error) {
	dsn, known := i.dsn, true
	if dsn == "" {
		if !i.live && !debezium.NeedsDatabase(in) {
			return nil, nil //nolint:nilnil // nil means that it did not connect
		}
		if dsn, known = debezium.Source(in); !known && i.live {
			return nil, mistake(errors.New("only Kafka Connect knows the connector's database: pass --dsn"))
		}
	}
	if !known {
		return nil, nil //nolint:nilnil // the report names what is unknown without it
	}
	cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "source.dsn", Value: dsn, Flag: "--dsn"}}})
	if err != nil {
		return nil, command.Failed(err)
	}
	conn, err := cfg.Postgres()
	if err == nil {
		opts.Live, err = debezium.Ask(ctx, conn)
	}
	if err != nil && !i.live && i.dsn == "" { // the user did not ask for it: the report names what is missing
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

// write writes the configuration to the file of -o, or to standard output.
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

// writeSecret writes a file that only its owner may read, even if the file exists with other permissions.
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

// readInput reads a file, or stdin if the name is -.
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

// mistake returns the ExitError for wrong input.
func mistake(err error) *command.ExitError {
	return &command.ExitError{Err: err, Exit: relay.ExitUsage}
}
