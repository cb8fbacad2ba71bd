package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints the version, Git revision, Go version, platform, and where the documentation of
this version is. Include it in a bug report.`,
		Example: `  outbox-cdc version`,
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := command.Version()
			fmt.Fprintf(a.stdout, "outbox-cdc %s\n", b.Module)
			if b.Revision != "" {
				modified := ""
				if b.Modified {
					modified = ", modified"
				}
				fmt.Fprintf(a.stdout, "revision   %s (%s%s)\n", b.Revision, b.Time, modified)
			}
			fmt.Fprintf(a.stdout, "go         %s\n", runtime.Version())
			fmt.Fprintf(a.stdout, "platform   %s/%s\n", runtime.GOOS, runtime.GOARCH)
			fmt.Fprintf(a.stdout, "docs       %s\n", b.Docs())
			return nil
		},
	}
}
