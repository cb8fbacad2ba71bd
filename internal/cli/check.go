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
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func (a *app) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether all that a relay needs is there, and what mends it",
		Long: `Check looks at both sides and says, one condition per line, whether a relay can deliver: ok,
warning, or fails, and below it the statement, command or setting that mends it. It writes nothing,
creates nothing, and may be used while a relay runs. The exit code is 0 if no condition fails, else 1.

With --probe it also creates a topic in Kafka, writes three records to it and deletes it. So it finds
out whether the broker rejects records of an older relay after a newer one has taken over, as Apache
Kafka does. The topic's name begins with that of position_topic.

With --takeover it says instead whether the slot that a Debezium connector has left can be taken
over, and with the offsets that Kafka Connect has stored for it where to start, so that as little
as possible is sent again.`,
		Example: `  outbox-cdc check -c outbox-cdc.yaml
  outbox-cdc check -c outbox-cdc.yaml --json | jq '.[] | select(.state != "ok")'
  outbox-cdc check --probe -c outbox-cdc.yaml
  outbox-cdc check --takeover -c outbox-cdc.yaml --offsets offsets.json`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "brokers")
	takeover := cmd.Flags().Bool("takeover", false, "check what taking over a slot from Debezium needs")
	offsets := cmd.Flags().String("offsets", "", "with --takeover: a `file` with the answer to GET /connectors/<name>/offsets, or the worker's own")
	probe := cmd.Flags().Bool("probe", false, "create, write and delete a topic to test whether the broker rejects records of an older relay")
	timeout := cmd.Flags().Duration("timeout", check.DefaultTimeout, "how long everything may take; one question may take a sixth of it")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *offsets != "" && !*takeover {
			return command.Usage(cmd, errors.New("--offsets is for --takeover"))
		}
		if *probe && *takeover {
			return command.Usage(cmd, errors.New("--probe and --takeover cannot be used together"))
		}
		if *timeout <= 0 {
			return command.Usage(cmd, errors.New("--timeout must be more than nothing"))
		}
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		if *takeover {
			conditions, err := a.takeover(cmd.Context(), cfg, s.File, *offsets)
			if err != nil {
				return err
			}
			return a.printConditions(conditions, debezium.Ready(conditions), *asJSON)
		}
		relay, err := cfg.Relay()
		if err != nil {
			return command.Failed(err)
		}
		conditions := check.Run(cmd.Context(), check.Config{Relay: relay, File: s.File, Probe: *probe, Timeout: *timeout})
		if err := context.Cause(cmd.Context()); err != nil {
			return command.Failed(err)
		}
		return a.printConditions(conditions, unmet(conditions), *asJSON)
	}
	return cmd
}

// unmet is the error of conditions that are not all met.
func unmet(conditions []check.Condition) error {
	if n := check.Count(conditions); n > 0 {
		return fmt.Errorf("%d of %d conditions fail", n, len(conditions))
	}
	return nil
}

// takeover looks at everything that a take-over depends on.
func (a *app) takeover(ctx context.Context, cfg *config.Config, file, offsets string) ([]check.Condition, error) {
	setup, err := cfg.Setup()
	if err != nil {
		return nil, command.Failed(err)
	}
	t := debezium.Takeover{Config: file}
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
	if t.Catalog, err = catalog.Inspect(ctx, setup.Conn, setup.Publication, setup.Slot); err != nil {
		return nil, elsewhere(err)
	}
	if t.Catalog.Publication != nil && len(setup.Tables) > 0 {
		t.Covers = catalog.Covers(ctx, setup.Conn, setup.Publication, setup.Tables)
		if t.Covers != nil && !errors.Is(t.Covers, replication.ErrPublication) && !errors.Is(t.Covers, replication.ErrConfig) {
			return nil, elsewhere(t.Covers)
		}
	}
	return debezium.CheckTakeover(t), nil
}

// printConditions writes one line per condition, and below it what mends it. not is the error that
// some of them are not met.
func (a *app) printConditions(conditions []check.Condition, not error, asJSON bool) error {
	write := check.WriteText
	if asJSON {
		write = check.WriteJSON
	}
	if err := write(a.stdout, conditions); err != nil {
		return err
	}
	if not != nil {
		return &command.ExitError{Err: not, Exit: relay.ExitUnexpected, What: "not ready", Next: "what mends each of them is said above; then check again"}
	}
	return nil
}

const (
	besideAfter   = time.Second      // a start has the machine and the servers to itself for so long
	besideTimeout = 10 * time.Second // of the look
)

// checkBeside looks, beside a relay that has just been started, at what it does not find out by itself, and logs what is
// not as it should be. What it returns ends that.
func checkBeside(ctx context.Context, relay relay.Config, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		select {
		case <-time.After(besideAfter):
		case <-ctx.Done(): // the relay has ended, with an error of its own or as it was told to
			return
		}
		for _, c := range check.AtStart(ctx, check.Config{Relay: relay, Timeout: besideTimeout}) {
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
