package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
)

func (a *app) healthcheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that the relay on this machine is alive",
		Long: `Healthcheck asks the relay's admin server whether the relay is alive (/livez) or, with --ready, whether
it delivers records or is a standby (/readyz). It prints one line and exits with 0 or 1. Use it where a health check
must be a program, such as HEALTHCHECK in a Dockerfile; probes that speak HTTP can ask the server.

A relay is alive unless only a restart can help. It stays alive while Postgres or the broker is down.

Healthcheck finds the admin server through admin.listen. In a container, set it in the environment:
OUTBOX_CDC_ADMIN_LISTEN.`,
		Example: `  outbox-cdc healthcheck
  outbox-cdc healthcheck --ready -c outbox-cdc.yaml`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd)
	ready := cmd.Flags().Bool("ready", false, "check that the relay is ready")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := a.health(cmd.Context(), s, *ready)
		if err != nil {
			text = strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Fprintln(a.stdout, text)
		if err != nil { // always 1: Docker reserves 2
			return &command.ExitError{Err: err, Exit: exit.Unexpected, Silent: true}
		}
		return nil
	}
	return cmd
}

// health returns the relay's response, or an error if the relay is not alive or not ready.
func (a *app) health(ctx context.Context, s *command.Settings, ready bool) (string, error) {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return "", err
	}
	if cfg.Admin.Listen == "" {
		return "", errors.New("admin.listen is empty: the relay has no admin server")
	}
	client, err := admin.NewClient(cfg.Admin.Listen)
	if err != nil {
		return "", err
	}
	probe := client.Live
	if ready {
		probe = client.Ready
	}
	text, ok, err := probe(ctx)
	if err == nil && !ok {
		err = errors.New(text)
	}
	return text, err
}
