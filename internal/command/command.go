// Package command holds what the command lines of our programs have in common: how a program ends, how it
// finds its configuration, and how it shows that it works.
//
// What goes wrong is written once, to standard error, as one block: what happened, where, what
// to do. Its last line names the exit code, the object, the position if there is one, and
// the next step. Exit codes are those of package relay; whatever is wrong with
// the command line or the configuration is 2.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Run runs the command line args, without the program's name, of the program that root describes, and
// returns the exit code. When ctx is done, what runs stops cleanly.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.Version, root.SilenceUsage, root.SilenceErrors = Version().Module, true, true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return relay.ExitOK
	}
	f, ok := errors.AsType[*ExitError](err)
	if !ok { // cobra's own: it could not make sense of the command line
		f = Usage(cmd, fmt.Errorf("%w%s", withoutSecrets(err, args), flagHint(cmd, err)))
	}
	f.write(stderr, root.Name())
	return f.Exit
}

// flagHint names the flag of cmd that an unknown one was probably meant to be, also one with a single dash. It is
// empty for any other error.
func flagHint(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	got := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
	if len(got) < 2 {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	meant := config.Nearest(got, names)
	if meant == "" {
		return ""
	}
	return "; did you mean --" + meant + "?"
}

// Group is the RunE of a command that only has subcommands: cobra takes an unknown one for
// an argument.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return NoArgs(cmd, args)
}

// NoArgs is the Args of a command without arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unexpected argument %q", args[0])
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		problem += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return errors.New(problem)
}

// Getenv returns a variable of environ that is about the terminal or the process and not about the
// configuration.
func Getenv(environ []string, name string) string {
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

// withoutSecrets returns err without those of the arguments that may be secrets in the wrong
// place, such as a connection string where a verb or a flag was forgotten.
func withoutSecrets(err error, args []string) error {
	text, _, _ := strings.Cut(err.Error(), " in -") // cobra repeats an unknown short flag with what it is glued to
	for _, arg := range args {
		if strings.ContainsAny(arg, "@=") {
			text = strings.NewReplacer(strconv.Quote(arg), "***", arg, "***").Replace(text)
		}
	}
	return errors.New(text)
}
