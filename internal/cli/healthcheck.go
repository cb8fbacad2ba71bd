package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

func (a *app) healthcheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the relay on this machine whether it is alive",
		Long: `Healthcheck asks the relay's admin server whether the relay is alive (/livez), or, with --ready,
whether records get to Kafka (/readyz), and prints one line. The exit code is 0 or 1. It is for where
a program has to be run, as for a HEALTHCHECK of an image; what can ask over HTTP needs no program.

It is alive unless only a restart can help: a database or a broker that is down is no reason.
Where the admin server listens is what admin.listen says, which a container had better be told in its
environment: OUTBOX_CDC_ADMIN_LISTEN.`,
		Example: `  outbox-cdc healthcheck
  outbox-cdc healthcheck --ready -c outbox-cdc.yaml`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd)
	ready := cmd.Flags().Bool("ready", false, "ask whether it is ready")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		says, err := a.health(cmd.Context(), s, *ready)
		if err != nil {
			says = strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Fprintln(a.stdout, says)
		if err != nil { // whatever it is: Docker reserves 2
			return &command.ExitError{Err: err, Exit: relay.ExitUnexpected, Silent: true}
		}
		return nil
	}
	return cmd
}

// health returns what the relay says if that is well, and else why not.
func (a *app) health(ctx context.Context, s *command.Settings, ready bool) (string, error) {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return "", err
	}
	if cfg.Admin.Listen == "" {
		return "", errors.New("admin.listen is empty: there is nobody to ask")
	}
	client, err := admin.NewClient(cfg.Admin.Listen)
	if err != nil {
		return "", err
	}
	probe := client.Live
	if ready {
		probe = client.Ready
	}
	says, well, err := probe(ctx)
	if err == nil && !well {
		err = errors.New(says)
	}
	return says, err
}
