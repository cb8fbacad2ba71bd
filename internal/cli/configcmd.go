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
		Long: `Config prints the configuration that results from the file, the environment and the flags, with the
source of each value. Secrets are masked. Keys without an effect are left out: those of other brokers, and
those of debezium as long as none is set. It validates the configuration without connecting to a server, and
does not require any key.

With --schema, config prints the JSON Schema of the file, for editors and deployment checks.`,
		Example: `  outbox-cdc config -c outbox-cdc.yaml
  outbox-cdc config --schema > outbox-cdc.schema.json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", command.Sink)
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
