package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Main runs the command line args, without the program's name, and returns the exit code.
// Of environ only the OUTBOX_CDC_ variables are looked at, those that the configuration file refers
// to, and what describes the terminal; libpq's
// PG* variables are those of the process. When ctx is done, what runs stops cleanly.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	a := &app{environ: environ, stdout: stdout, stderr: stderr}
	root := a.root() //nolint:contextcheck // cobra hands ctx to what runs
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return relay.ExitOK
	}
	f, ok := errors.AsType[*failure](err)
	if !ok { // cobra's own: it could not make sense of the command line
		f = usage(cmd, withoutSecrets(err, args))
	}
	f.write(stderr)
	return f.exit
}

// An app is what every verb needs.
type app struct {
	environ        []string
	stdout, stderr io.Writer
}

// getenv returns a variable that is about the terminal and not about the configuration.
func (a *app) getenv(name string) string {
	for _, variable := range a.environ {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-cdc",
		Short: "Relay a Postgres outbox table to Kafka",
		Long: `outbox-cdc tails the write-ahead log of Postgres through a logical replication slot,
turns each committed row of an outbox table into a Kafka record keyed by its aggregate,
and confirms a position only after Kafka has acknowledged everything up to it.`,
		Example: `  outbox-cdc demo --for 20s
  outbox-cdc run -c outbox-cdc.yaml`,
		Version:       version().short(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(a.run(), a.demo(), a.migrate(), a.setup(), a.importFrom(), a.check(), a.status(), a.healthcheck(), a.tail(), a.deadLetter(), a.replay(), a.prune(), a.inbox(), a.bench(), a.config(), a.version())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	return root
}

// group is the RunE of a command that only has subcommands: cobra takes an unknown one for
// an argument.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return noArgs(cmd, args)
}

// noArgs is the Args of every command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unexpected argument %q", args[0])
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		problem += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return errors.New(problem)
}
