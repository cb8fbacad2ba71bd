package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/check"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

func (a *app) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that Postgres and the broker are ready, and how to fix what isn't",
		Long: `Check tests everything that a relay needs in Postgres and the broker. It prints the conditions that fail and
the warnings, each with the statement, command or setting that fixes it, and how many are ok. It changes
nothing, and you can run it beside a relay. The exit code is 0 if no condition fails, otherwise 1.

With --probe, for Kafka, check also creates a topic, writes three records to it and deletes it. This tests whether
the broker rejects records of an older relay after a newer one has taken over, as Apache Kafka does. The
topic's name begins with the name of position_topic.

With --takeover, check tests instead whether outbox-cdc can continue from the slot of a Debezium
connector. With the offsets that Kafka Connect has stored, it also prints where to start, so that few
records are duplicated.`,
		Example: `  outbox-cdc check -c outbox-cdc.yaml
  outbox-cdc check -c outbox-cdc.yaml --json | jq '.[] | select(.state != "ok")'
  outbox-cdc check --probe -c outbox-cdc.yaml
  outbox-cdc check --takeover -c outbox-cdc.yaml --offsets offsets.json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", command.Sink)
	takeover := cmd.Flags().Bool("takeover", false, "check that outbox-cdc can continue from a slot of Debezium")
	offsets := cmd.Flags().String("offsets", "", "with --takeover: a `file` with the response of GET /connectors/<name>/offsets, or a worker's offset file")
	probe := cmd.Flags().Bool("probe", false, "test with a temporary topic whether the broker rejects records of an older relay")
	timeout := cmd.Flags().Duration("timeout", check.DefaultTimeout, "time limit of the whole check; a single request may take a sixth of it")
	all := cmd.Flags().Bool("all", false, "also list the conditions that are ok")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *offsets != "" && !*takeover {
			return command.Usage(cmd, errors.New("--offsets needs --takeover"))
		}
		if *probe && *takeover {
			return command.Usage(cmd, errors.New("--probe and --takeover cannot be used together"))
		}
		if *timeout <= 0 {
			return command.Usage(cmd, errors.New("--timeout must be positive"))
		}
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		if *takeover {
			conditions, err := a.takeover(cmd.Context(), cfg, *offsets)
			if err != nil {
				return err
			}
			return a.printConditions(conditions, debezium.Ready(conditions), true, *asJSON)
		}
		if *probe {
			if err := cfg.CheckFencing(); err != nil {
				return command.Usage(cmd, fmt.Errorf("--probe %w", err))
			}
		}
		relay, err := cfg.Relay()
		if err != nil {
			return command.Failed(err)
		}
		conditions := check.Run(cmd.Context(), check.Config{Relay: relay, Arguments: cfg.Arguments(), Warnings: cfg.Warnings(), Probe: *probe, Timeout: *timeout})
		if err := context.Cause(cmd.Context()); err != nil {
			return command.Failed(err)
		}
		return a.printConditions(conditions, unmet(conditions), *all, *asJSON)
	}
	return cmd
}

// unmet returns an error if conditions fail.
func unmet(conditions []check.Condition) error {
	if n := check.Count(conditions); n > 0 {
		return fmt.Errorf("%d of %d conditions fail", n, len(conditions))
	}
	return nil
}

// takeover checks the conditions for continuing from a slot of Debezium.
func (a *app) takeover(ctx context.Context, cfg *config.Config, offsets string) ([]check.Condition, error) {
	setup, err := cfg.Setup()
	if err != nil {
		return nil, command.Failed(err)
	}
	t := debezium.Takeover{Arguments: cfg.Arguments()}
	if offsets != "" {
		if t.Offset, err = readOffset(offsets, cfg.Debezium.Name, ""); err != nil {
			return nil, mistake(err)
		}
	}
	elsewhere := func(err error) error {
		f := command.Failed(err)
		f.Where = []string{"source: " + command.Address(setup.Conn)}
		return f
	}
	if t.Catalog, err = catalog.Inspect(ctx, setup.Conn, setup.Publication, setup.Slot, catalog.NewTables(setup.Tables)); err != nil {
		return nil, elsewhere(err)
	}
	if slot := t.Catalog.Slot; slot != nil && !slot.Active { // while Debezium streams, the slot is ahead of the record
		t.Next, _ = nextStart(ctx, cfg) // nil if it is not known
	}
	return debezium.CheckTakeover(t), nil
}

// printConditions writes the conditions, on a terminal in lines that fit. unmet is the error if some of them fail.
func (a *app) printConditions(conditions []check.Condition, unmet error, all, asJSON bool) error {
	layout := check.Layout{All: all}
	if command.IsTerminal(a.stdout) {
		width, _ := a.size()
		layout.Width = min(width, readableWidth)
	}
	write := func() error { return check.WriteText(a.stdout, conditions, layout) }
	if asJSON {
		write = func() error { return check.WriteJSON(a.stdout, conditions) }
	}
	if err := write(); err != nil {
		return err
	}
	if unmet != nil {
		return &command.ExitError{Err: unmet, Exit: exit.Unexpected, What: "not ready", Next: "fix each of them as shown above, then run check again"}
	}
	return nil
}

const (
	besideAfter   = time.Second      // so that the check does not slow down the start
	besideTimeout = 10 * time.Second // of the check
)

// checkBeside runs a check beside a relay that has just started, and logs the conditions that are not met and that the
// relay itself does not notice. stop ends the check.
func checkBeside(ctx context.Context, relay relay.Config, arguments string, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		select {
		case <-time.After(besideAfter):
		case <-ctx.Done(): // the relay has stopped
			return
		}
		for _, c := range check.AtStart(ctx, check.Config{Relay: relay, Arguments: arguments, Timeout: besideTimeout}) {
			level := slog.LevelWarn
			if c.State == check.Failed {
				level = slog.LevelError
			}
			log.LogAttrs(ctx, level, "check", slog.String("condition", c.Title()), slog.String("found", c.Found), slog.String("fix", c.Fix))
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}
