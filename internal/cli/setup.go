package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
)

func (a *app) setup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create the publication and the replication slot",
		Long: `Setup creates the publication of the outbox tables and then the replication slot. It leaves existing
objects unchanged, so you can repeat it. It refuses to create the slot if rows could be lost. The tables
must exist (outbox-cdc migrate up). The role must own the tables and have the REPLICATION attribute; the
relay itself needs only REPLICATION.

With --grant-operator, setup also grants a role what prune, recover, replay and audit need on the tables, which
the relay's role does not need (docs/roles.md). The role must own the tables.

With source.initial_copy, which needs source.create: slot then, setup leaves the slot to the first start of the relay,
which sends the rows from before it.

With --drop, setup drops the slot and the publication. It keeps a publication that another slot of the database may
use, and drops nothing if the role may not drop both. The relay then no longer delivers rows that the slot had not
confirmed. Setup does not change the tables.`,
		Example: `  outbox-cdc setup --dsn postgres://owner@db/app
  outbox-cdc setup -c outbox-cdc.yaml --table public.outbox --table billing.outbox
  outbox-cdc setup -c outbox-cdc.yaml --dsn "$OWNER_DSN" --grant-operator outbox_operator
  outbox-cdc setup -c outbox-cdc.yaml --dsn "$OWNER_DSN" --drop`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "table")
	drop := cmd.Flags().Bool("drop", false, "drop the slot and the publication")
	operator := cmd.Flags().String("grant-operator", "", "`role` to grant what an operator's commands need on the tables")
	cmd.MarkFlagsMutuallyExclusive("drop", "grant-operator")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		setupCfg, err := cfg.Setup()
		if err != nil {
			return command.Failed(err)
		}
		setupCfg.Operator, setupCfg.PublicationOnly = *operator, !*drop && cfg.Source.InitialCopy && isFirstStart(cmd.Context(), cfg)
		do, warning := catalog.Setup, ""
		if *drop {
			do, warning = catalog.Drop, a.warnParked(cmd.Context(), cfg)
		}
		steps, err := do(cmd.Context(), setupCfg)
		a.printSteps(steps)
		if err != nil {
			f := command.Failed(err)
			f.Where = []string{"source: " + command.Address(setupCfg.Conn)}
			f.Object = "slot " + setupCfg.Slot
			if cmd.Context().Err() != nil {
				f.Interrupt("everything was done", "to continue: the same command")
			}
			return f
		}
		if warning != "" {
			fmt.Fprintln(a.stderr, warning)
		}
		if slices.ContainsFunc(steps, catalog.Step.LeftOut) && relay.Creation(cfg.Source.Create) != relay.CreateSlot {
			return mistake(fmt.Errorf("source.create is %s, with which the relay creates no slot for a publication that exists: set source.create: slot, then start it", cfg.Source.Create))
		}
		if !*drop {
			a.printNext(cmd.Context(), cfg, setupCfg, steps)
		}
		return nil
	}
	return cmd
}

func (a *app) printSteps(steps []catalog.Step) {
	for _, step := range steps {
		line := fmt.Sprintf("%-8s %s", step.Action, step.Object)
		if step.LSN != 0 {
			line += " at " + step.LSN.String()
		}
		fmt.Fprintln(a.stdout, line)
		if step.Warning != "" {
			fmt.Fprintf(a.stderr, "warning: %s: %s\n", step.Object, step.Warning)
		}
	}
}

// nextStartTimeout limits how long nextStart waits for the position store.
const nextStartTimeout = 3 * time.Second

// nextStart returns what a start of the relay would find, nil if no broker is configured. The error is an [*relay.UnreadError] if the
// position store does not respond.
func nextStart(ctx context.Context, cfg *config.Config) (*relay.NextStart, error) {
	if !cfg.HasBroker() {
		return nil, nil
	}
	starts, err := cfg.Relay()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, nextStartTimeout)
	defer cancel()
	return relay.FindNextStart(ctx, starts, slog.New(slog.DiscardHandler))
}

// isFirstStart reports whether the next start of the relay is its first one, and creates the slot. It is true if that cannot be found out:
// a relay that has run does not create a slot, but asks to recover.
func isFirstStart(ctx context.Context, cfg *config.Config) bool {
	next, err := nextStart(ctx, cfg)
	return err != nil || next == nil || next.First
}

// warnParked returns what to say of keys that the relay has parked when its slot is dropped, or "". Nothing if that cannot be found out.
func (a *app) warnParked(ctx context.Context, cfg *config.Config) string {
	next, err := nextStart(ctx, cfg)
	if err != nil || next == nil || next.Parked == 0 {
		return ""
	}
	return fmt.Sprintf("warning: parked keys: %d. Only a relay with this name can release them: outbox-cdc dead-letter list %s", next.Parked, cfg.Arguments())
}

// printNext prints what follows: the command that runs the relay with the broker of cfg, or with Kafka if it has none, or what must
// be done before.
func (a *app) printNext(ctx context.Context, cfg *config.Config, created catalog.SetupConfig, steps []catalog.Step) {
	terms := catalog.Terms{Slot: created.Slot, Publication: created.Publication, Arguments: cfg.Arguments()}
	next, err := nextStart(ctx, cfg)
	if err == nil && next != nil && next.Broken != nil {
		fmt.Fprintf(a.stdout, "\n%s\n", terms.Fill(hindrance(next, steps)))
		return
	}
	if unread, ok := errors.AsType[*relay.UnreadError](err); ok && slices.ContainsFunc(steps, catalog.Step.NewSlot) { // run reports any other error
		fmt.Fprintf(a.stdout, "\nThe slot is new, and it is not known whether a relay has used one of this name, so that rows are missing: %s.\n%s\n",
			oneLine(unread.Error()), terms.Fill("If a relay has, first: "+catalog.InstructRecover))
	}
	args := cfg.Arguments()
	if cfg.File() == "" {
		args = strings.TrimSpace("--dsn … " + strings.TrimSpace(strings.TrimPrefix(args, "--dsn …")))
		if !cfg.HasBroker() {
			args += " --brokers …"
		}
	}
	fmt.Fprintf(a.stdout, "\nnext: outbox-cdc run %s\n", args)
}

// hindrance returns why the relay would not start, and what to do before. steps are those of setup: a slot that it has just created
// is ahead of the position record.
func hindrance(next *relay.NextStart, steps []catalog.Step) string {
	gap, ok := errors.AsType[*checkpoint.GapError](next.Broken)
	if ok && !errors.Is(next.Broken, catalog.ErrRefill) && gap.SameSlot() && slices.ContainsFunc(steps, catalog.Step.NewSlot) {
		return fmt.Sprintf("The slot is new: rows committed after %s, the position recorded at %s, are not delivered.\nnext: %s",
			next.Record.EndLSN, at(next.Record.WrittenAt), strings.TrimPrefix(next.Recover, catalog.InstructSetup+", then "))
	}
	return fmt.Sprintf("run would exit with %d: %s\nnext: %s", fault.ExitCode(next.Broken), oneLine(next.Broken.Error()), fault.Next(next.Broken))
}
