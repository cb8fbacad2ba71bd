// Package command is what the command lines of outbox-cdc, its demo and its benchmark share: exit codes and the error
// block on standard error, loading of the configuration, the logger, and progress bars.
//
// A failed command writes one block to standard error: what happened, where, and how to fix it. The last line names
// the exit code, the object, the position if it is known, and the next step. Exit codes are those of package exit. An
// error in the command line or the configuration is exit code 2.
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
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
)

// Run runs the command line args, which do not include the program's name, and returns the exit code.
// root is the program's command. When ctx ends, the command stops cleanly.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.Version, root.SilenceUsage, root.SilenceErrors = Version().Module, true, true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentPreRunE = refuseEmptyTexts

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}
	f, ok := errors.AsType[*ExitError](err)
	if !ok { // an error of cobra: it cannot parse the command line
		f = Usage(cmd, fmt.Errorf("%w%s", withoutSecrets(err, args), flagHint(cmd, err)))
	}
	f.Terms.Arguments = sourcesIn(cmd.Flags()).Arguments()
	if f.Next == fault.NextPrivilege {
		f.Next = privilegeFor(cmd.CommandPath())
	}
	f.write(stderr, root.Name())
	return f.Exit
}

// refuseEmptyTexts reports a flag whose text is empty, as that of --where "$CONDITION" is if the variable is not set. To take it
// for a flag that is not given would select everything. Only the key of a record may be empty.
func refuseEmptyTexts(cmd *cobra.Command, _ []string) error {
	var problem error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "key" {
			problem = Usage(cmd, fmt.Errorf("--%s is empty; leave the flag out, or give it a text", f.Name))
		}
	})
	return problem
}

// privilegeFor returns the next step if the role of a command lacks a privilege: docs/roles.md has the role that each is for.
func privilegeFor(path string) string {
	const roles = " (docs/roles.md#which-role-runs-which-command)"
	_, verb, _ := strings.Cut(path, " ")
	switch verb, _, _ := strings.Cut(verb, " "); verb {
	case "audit", "prune", "recover", "replay":
		return `give the operator's --dsn "$OPERATOR_DSN", a role that setup --grant-operator grants what the command needs` + roles
	case "migrate", "setup":
		return `give the owner's --dsn "$OWNER_DSN"` + roles
	}
	return fault.NextPrivilege
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
	switch key := config.KeyOfFlag(got); {
	case key != "" && cmd.Flags().Lookup("set") != nil:
		return "; did you mean --set " + key + "=…?"
	case meant == "":
		return ""
	}
	return "; did you mean --" + meant + "?"
}

// Group is the RunE of a command that has only subcommands. Without it, cobra would treat an unknown
// subcommand as an argument.
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

// Getenv returns a variable of environ that concerns the terminal or the process, not the configuration.
func Getenv(environ []string, name string) string {
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

// withoutSecrets returns err without arguments that may contain a secret, such as a connection string
// in place of a subcommand.
func withoutSecrets(err error, args []string) error {
	text, _, _ := strings.Cut(err.Error(), " in -") // cobra repeats the argument of an unknown short flag
	for _, arg := range args {
		if strings.ContainsAny(arg, "@=") {
			text = strings.NewReplacer(strconv.Quote(arg), "***", arg, "***").Replace(text)
		}
	}
	return errors.New(text)
}
