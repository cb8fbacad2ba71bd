package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

func (a *app) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the slot and the relay",
		Long: `Status asks Postgres about the slot and the relay's admin server about the relay. It shows what is
wrong, the cause, what to do, and the numbers. If one of the two does not respond, it shows the other.
It changes nothing.

The exit code is 0 if the relay delivers or is a standby: both have responded, the slot is active and
not about to be lost, the relay is ready, and the broker acknowledges its records. Otherwise it is 1. If
admin.listen is empty, status asks only Postgres.

With --watch, status updates every second until you press q or Ctrl-C; the exit code is 0. Without a
terminal it prints one block, or with --json one line, per second.`,
		Example: `  outbox-cdc status -c outbox-cdc.yaml
  outbox-cdc status -c outbox-cdc.yaml --watch
  outbox-cdc status -c outbox-cdc.yaml --admin relay.example.com:9187 --json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", command.Sink)
	where := cmd.Flags().String("admin", "", "address of the relay's admin server, `host:port` or a URL (default: admin.listen)")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	watch := cmd.Flags().Bool("watch", false, "update every second")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asker, err := a.asker(s, *where)
		if err != nil {
			return err
		}
		defer asker.Close(cmd.Context())
		w := &statusWatch{app: a, asker: asker, json: *asJSON}
		switch {
		case !*watch:
			return w.once(cmd.Context())
		case w.onTerminal():
			return w.live(cmd.Context())
		}
		return w.repeat(cmd.Context())
	}
	return cmd
}

// asker returns an Asker for the configured server and slot, and the relay at where.
func (a *app) asker(s *command.Settings, where string) (*status.Asker, error) {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return nil, command.Failed(err)
	}
	setup, err := cfg.Setup()
	if err != nil {
		return nil, command.Failed(err)
	}
	asked := status.Config{
		Conn: setup.Conn, Publication: setup.Publication, Slot: setup.Slot,
		Address: command.Address(setup.Conn), Arguments: cfg.Arguments(), Admin: cmp.Or(where, cfg.Admin.Listen),
	}
	if cfg.HasBroker() {
		starts, err := cfg.Relay()
		if err != nil {
			return nil, command.Failed(err)
		}
		asked.Relay = &starts
	}
	return status.New(asked), nil
}

// print writes r as a block of text or a line of JSON.
func (w *statusWatch) print(out io.Writer, r *status.Report) error {
	if w.json {
		return printJSON(out, r)
	}
	width, _ := w.app.size()
	for _, line := range w.view(width, 0).Lines(r) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func (w *statusWatch) view(width, height int) status.View {
	return status.View{Width: width, Height: height, Style: w.style(), History: w.asker.History()}
}

// style returns colors if standard output is a terminal that shows them.
func (w *statusWatch) style() terminal.Style {
	return terminal.Style{On: command.IsTerminal(w.app.stdout) && command.Getenv(w.app.environ, "TERM") != "dumb" && command.Getenv(w.app.environ, "NO_COLOR") == ""}
}

// once prints one report, and fails unless it is healthy.
func (w *statusWatch) once(ctx context.Context) error {
	r := w.asker.Ask(ctx)
	if err := w.print(w.app.stdout, r); err != nil {
		return err
	}
	if !r.Healthy {
		return &command.ExitError{Err: fmt.Errorf("%s: %s", r.Title, r.Why), Exit: exit.Unexpected, Silent: true}
	}
	return nil
}
