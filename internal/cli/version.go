package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A build says what this binary was made from.
type build struct {
	version  string // the module's; "(devel)" if unknown
	revision string // of the repository; empty if unknown
	time     string
	modified bool
}

func version() build {
	b := build{version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			b.time = s.Value
		case "vcs.modified":
			b.modified = s.Value == "true"
		}
	}
	return b
}

// short returns the version in one word.
func (b build) short() string { return b.version }

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, revision, Go version and platform",
		Long:    `Version prints what this binary was made from: please send it along with a report.`,
		Example: `  outbox-cdc version`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := version()
			fmt.Fprintf(a.stdout, "outbox-cdc %s\n", b.version)
			if b.revision != "" {
				modified := ""
				if b.modified {
					modified = ", modified"
				}
				fmt.Fprintf(a.stdout, "revision   %s (%s%s)\n", b.revision, b.time, modified)
			}
			fmt.Fprintf(a.stdout, "go         %s\n", runtime.Version())
			fmt.Fprintf(a.stdout, "platform   %s/%s\n", runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
