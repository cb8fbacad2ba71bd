package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/preset"
)

// maxInput is the maximum size of a file that import reads.
const maxInput = 16 << 20

func (a *app) importFrom() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert another tool's configuration",
		Long: `Import converts the configuration of the tool that has relayed the outbox so far. With --preset, it writes
a configuration for the outbox table of a library: ` + strings.Join(preset.Names(), ", ") + `.`,
		Example: `  outbox-cdc import debezium connector.json --worker connect-distributed.properties -o outbox-cdc.yaml
  outbox-cdc import --preset quarkus -o outbox-cdc.yaml`,
		Args: command.NoArgs,
	}
	name := cmd.Flags().String("preset", "", "write the configuration for the outbox table of this `library`")
	output := cmd.Flags().StringP("output", "o", "", "`file` for the configuration, readable only by its owner")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *name == "" {
			return command.Group(cmd, args)
		}
		text, err := preset.Config(*name)
		if err != nil {
			return mistake(fmt.Errorf("--preset: %w", err))
		}
		if *output == "" {
			_, err := a.stdout.Write(text)
			return err
		}
		if err := writeSecret(*output, text); err != nil {
			return mistake(err)
		}
		fmt.Fprintf(a.stderr, "next: outbox-cdc check -c %s --dsn … --brokers …\n", *output)
		return nil
	}
	cmd.AddCommand(a.importDebezium())
	return cmd
}

// An importing is one run of import debezium.
type importing struct {
	*app
	name, worker, offsets, output, dsn, newSlot string
	brokers, messages                           []string
	exact, unknown, live, plan                  bool
}

func (a *app) importDebezium() *cobra.Command {
	i := &importing{app: a}
	cmd := &cobra.Command{
		Use:   "debezium file",
		Short: "Convert the configuration of a Debezium connector",
		Long: `Debezium reads the configuration of a Debezium PostgreSQL connector with the outbox event router, and
writes a configuration with which outbox-cdc produces the same records, to standard output or the file
of -o. For each key it reports on standard error: 1:1 (same), PART (with a difference), NOTE (not required)
or REJ (rejected). If a key is rejected, it writes nothing and exits with 2.

The file may be JSON as in Kafka Connect's REST API, also in a shell script; properties; YAML with a
KafkaConnector of Strimzi or with the keys of a connector; or the properties, YAML, environment or
DebeziumServer resource of Debezium Server. - is standard input. If the file has several connectors, --name chooses one.

Converters and brokers that the connector inherits come from the Connect worker: pass its properties, an
.env or compose file or a docker run command with CONNECT_… variables, or a KafkaConnect of Strimzi with --worker.

Debezium connects to the database only with --dsn or --live. It then also prints the records of the last
rows, and resolves a list of tables that is a regular expression.`,
		Example: `  outbox-cdc import debezium connector.json --worker connect-distributed.properties -o outbox-cdc.yaml
  curl -s connect:8083/connectors/orders-outbox | outbox-cdc import debezium - --worker worker.properties --exact
  outbox-cdc import debezium connector.json --worker worker.properties --new-slot outbox_cdc -o outbox-cdc.yaml
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
	flags.StringVar(&i.name, "name", "", "`name` of the connector, if the file has several")
	flags.StringVar(&i.worker, "worker", "", "`file` of the Connect worker: its properties, an .env or compose file, or a Strimzi KafkaConnect")
	flags.StringVar(&i.offsets, "offsets", "", "stored offsets: a `file` with the response of GET /connectors/<name>/offsets, or a worker's offset file")
	flags.StringVar(&i.newSlot, "new-slot", "", "do not take over the connector's slot, but convert for a new one with this `name` beside it, and print how to switch over")
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
	in, err := debezium.ParseNamed(data, i.name)
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
		return mistake(fmt.Errorf("%s: %w", cmp.Or(i.worker, name), err))
	}
	if reason := result.Foreign(); reason != "" {
		return &command.ExitError{Err: fmt.Errorf("%s: %s", name, reason), Exit: exit.Usage, Next: "keep Debezium for this connector"}
	}
	if i.plan {
		_, err := result.RollbackPlan().WriteTo(i.stdout)
		return err
	}
	if _, err := result.Report.WriteTo(i.stderr); err != nil {
		return err
	}
	if refused := result.Report.Refused(); len(refused) > 0 {
		if err := result.WriteNext(i.stderr); err != nil {
			return err
		}
		return &command.ExitError{
			Err: fmt.Errorf("%s cannot be converted: rejected keys: %d", name, len(refused)), Exit: exit.Usage,
			Next: "see above, or keep Debezium for this connector",
		}
	}
	if i.live || i.dsn != "" {
		if err := i.preview(ctx, result, conn); err != nil {
			return err
		}
	}
	if err := i.write(result); err != nil {
		return err
	}
	if err := result.WriteNext(i.stderr); err != nil || i.newSlot == "" {
		return err
	}
	fmt.Fprintln(i.stderr)
	_, err = result.SwitchPlan(cmp.Or(i.output, "outbox-cdc.yaml")).WriteTo(i.stderr)
	return err
}

// options reads the files of --worker and --offsets.
func (i *importing) options(in *debezium.Input) (opts debezium.Options, err error) {
	opts = debezium.Options{Output: i.output, Brokers: i.brokers, Messages: i.messages, Exact: i.exact, AllowUnknown: i.unknown, NewSlot: i.newSlot}
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

// ask reads the database if the user asks for it. It returns the connection's configuration, nil if it did not connect.
func (i *importing) ask(ctx context.Context, in *debezium.Input, opts *debezium.Options) (*pgx.ConnConfig, error) {
	if i.dsn == "" && !i.live {
		return nil, nil //nolint:nilnil // nil means that it did not connect
	}
	if _, known := debezium.Source(in); i.dsn == "" && !known {
		return nil, mistake(errors.New("the connector's file does not have the whole connection to its database: pass --dsn"))
	}
	live, conn, err := debezium.Ask(ctx, in, i.dsn, func(dsn string) (*pgx.ConnConfig, error) {
		cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "source.dsn", Value: dsn, Flag: "--dsn"}}})
		if err != nil {
			return nil, err
		}
		return cfg.Postgres()
	})
	if err != nil {
		f := command.Failed(err)
		if conn != nil {
			f.Where = []string{"source: " + command.Address(&conn.Config)}
		}
		return nil, f
	}
	opts.Live = live
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
	return &command.ExitError{Err: err, Exit: exit.Usage}
}
