package cli

import (
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: `Config prints what is in force after file, environment and flags have been merged, each value with where
it comes from. Secrets are masked. It checks everything that can be checked without contacting a
server, and needs no key to be set.

With --schema it prints the JSON Schema of the file, for editors and for checks before a deployment.`,
		Example: `  outbox-cdc config -c outbox-cdc.yaml
  outbox-cdc config --schema > outbox-cdc.schema.json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "brokers")
	schema := cmd.Flags().Bool("schema", false, "print the JSON Schema")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *schema {
			if err := config.WriteSchema(a.stdout); err != nil {
				return command.Failed(err)
			}
			return nil
		}
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		if err := cfg.WriteYAML(a.stdout); err != nil {
			return command.Failed(err)
		}
		return nil
	}
	return cmd
}
