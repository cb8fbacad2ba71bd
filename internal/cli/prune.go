package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/prune"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/migrations"
)

// pruneAge is the default of --older-than. After a slot is lost, it leaves a week to resend rows from the table.
const pruneAge = 7 * 24 * time.Hour

// maxAhead is the maximum of --ahead. A larger one is a mistake: each day is a partition.
const maxAhead = 366

func (a *app) prune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete delivered rows, and create upcoming partitions",
		Long: `Prune deletes rows that are older than --older-than and that the slot has confirmed as delivered. It drops
partitions by age as a whole, and deletes other rows in short transactions. If the table was created by
migrate up --partitioned, prune first creates the partitions of the next days. Run it once a day, beside
the relay and the writers. You can stop or kill it at any time and run it again.

The relay must be running, because prune waits for the slot to confirm a position. If the relay's
publication leaves out rows of a table, those were never delivered, and prune exits with 2. The role
needs SELECT and DELETE on the tables; to create or drop partitions it must own them (docs/roles.md).`,
		Example: `  outbox-cdc prune -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --dry-run
  outbox-cdc prune --dsn "$OPERATOR_DSN" --older-than 72h
  outbox-cdc prune -c outbox-cdc.yaml --table billing.outbox --older-than 0s`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "table")
	var opts prune.Config
	flags := cmd.Flags()
	flags.DurationVar(&opts.OlderThan, "older-than", pruneAge, "delete rows of this `age`, such as 72h, and older; 0s: every delivered row, but a partition by age only once it has ended")
	flags.StringVar(&opts.AgeColumn, "age-column", "created_at", "`column` with the time at which a row was written")
	flags.StringArrayVar(&opts.Slots, "also-slot", nil, "another `slot` that must have confirmed the rows; may be repeated")
	flags.IntVar(&opts.Days, "ahead", migrations.InitialDays, "create partitions for this many `days` after today, at most 366")
	flags.IntVar(&opts.Batch, "batch", 5000, "approximate number of `rows` to delete per transaction")
	flags.DurationVar(&opts.Wait, "wait", time.Minute, "`time` to wait for the relay to confirm the current end of the WAL, and for a locked table")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be deleted, without deleting it")
	asJSON := flags.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if opts.OlderThan < 0 || opts.Batch <= 0 || opts.Wait <= 0 {
			return command.Usage(cmd, errors.New("--older-than must not be negative; --batch and --wait must be positive"))
		}
		if opts.Days < 0 || opts.Days > maxAhead {
			return command.Usage(cmd, fmt.Errorf("--ahead must be from 0 to %d days", maxAhead))
		}
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		return a.pruneTables(cmd.Context(), cfg, opts, *asJSON)
	}
	return cmd
}

func (a *app) pruneTables(ctx context.Context, cfg *config.Config, opts prune.Config, asJSON bool) error {
	base, err := cfg.Prune()
	if err != nil {
		return command.Failed(err)
	}
	opts.Source, opts.Tables, opts.Publication, opts.Slots = base.Source, base.Tables, base.Publication, append(base.Slots, opts.Slots...)
	if len(opts.Tables) == 0 {
		return mistake(errors.New("with outbox.messages there is no table to prune"))
	}
	bar := command.NewProgress(a.stderr, a.environ, command.NewLogger(cfg, a.stderr))
	bar.Phase = "prune"
	opts.Progress = func(table string, done, total int) { bar.Show(ctx, table+", pages", done, total) }

	if warning := parkedWarning(ctx, cfg.Admin.Listen, base.Slots[0]); warning != "" {
		fmt.Fprintf(a.stderr, "warning: %s\n", catalog.Terms{Arguments: cfg.Arguments()}.Fill(warning))
	}
	report, err := prune.Run(ctx, opts)
	bar.End()
	if asJSON {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(report); err != nil {
			return err
		}
	} else {
		printPruned(a.stdout, report, err != nil)
	}
	for _, t := range report.Tables {
		for _, warning := range t.Warnings {
			fmt.Fprintf(a.stderr, "warning: %s: %s\n", t.Name, warning)
		}
	}
	if err == nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{"source: " + command.Address(&opts.Source.Config)}
	f.Object = "slot " + opts.Slots[0]
	if refusal, ok := errors.AsType[*prune.NotConfirmedError](err); ok {
		f.Exit, f.What, f.Object = exit.Unexpected, "not confirmed", "slot "+refusal.Slot
		f.Next = "check that the relay is running and has caught up, then run prune again (docs/prune.md#prune-removes-nothing)"
	}
	if errors.Is(err, prune.ErrConfig) {
		f.Exit, f.Next = exit.Usage, "see outbox-cdc prune --help"
	}
	if _, ok := errors.AsType[*prune.OwnerError](err); ok {
		f.Next = `run prune as the owner of the table, with --dsn "$OWNER_DSN" (docs/roles.md#which-role-runs-which-command)`
	}
	if refusal, ok := errors.AsType[*prune.NotPublishedError](err); ok {
		f.Object, f.Next = "publication "+refusal.Publication, "resend the rows that were not published, then prune (docs/prune.md#prune-refuses-a-table)"
		f.Advice = "Rows that are inserted while the relay's publication leaves them out are never delivered. Before you prune:\n" +
			"  - If another relay delivers the table, give its --publication and --slot.\n" +
			"  - Otherwise change the publication, then resend the earlier rows with outbox-cdc replay."
	}
	return f
}

// parkedWarning returns what to say of the keys that the relay of slot has parked: prune deletes their rows too. It is empty if
// there are none, and if the relay's admin server at address does not say so: it may be on another machine.
func parkedWarning(ctx context.Context, address, slot string) string {
	if address == "" {
		return ""
	}
	client, err := admin.NewClient(address)
	if err != nil {
		return ""
	}
	status, _, err := client.Status(ctx)
	if err != nil || status.Slot.Name != slot || status.Parked.Number == 0 {
		return ""
	}
	first, copies := status.Parked.Keys[0], "the dead-letter topic has the only copy"
	if i := slices.IndexFunc(status.Parked.Keys, func(k admin.ParkedKey) bool { return k.Truncated }); i >= 0 {
		first, copies = status.Parked.Keys[i], "no copy is left of a row whose dead letter is truncated, like that of key "+status.Parked.Keys[i].ID
	}
	return fmt.Sprintf("%s parked, the first one for %s. Records of parked keys count as delivered: once prune has deleted the rows, %s. To release key %s: %s",
		terminal.Counted(status.Parked.Number, "key"), terminal.Duration(status.Parked.Oldest), copies, first.ID, first.Fix)
}

// printPruned prints the report as text. failed says that the prune has stopped at an error.
func printPruned(w io.Writer, report prune.Report, failed bool) {
	would := ""
	if report.DryRun {
		would = "would be "
	}
	for _, t := range report.Tables {
		say := func(format string, args ...any) { fmt.Fprintf(w, "%s: %s\n", t.Name, fmt.Sprintf(format, args...)) }
		for _, name := range t.Created {
			say("partition %s created", name)
		}
		for _, p := range t.Dropped {
			say("partition %s %sdropped (%s)", p.Name, would, p.Size)
		}
		for _, p := range t.Kept {
			say("partition %s is in use; the next prune drops it", p.Name)
		}
		if t.Busy > 0 {
			say("%s found locked rows; the next prune deletes those", terminal.Counted(t.Busy, "transaction"))
		}
		nothing := t.Deleted == 0 && len(t.Dropped) == 0
		if failed && nothing {
			say("not pruned, because of the error")
			continue
		}
		if t.Whole && len(t.Dropped)+len(t.Kept) == 0 && !failed {
			say("no partition ended before %s: a partition is dropped as a whole, with its rows, when it has", t.Before.UTC().Format(time.RFC3339))
		}
		if t.Confirmed == "" && nothing {
			if t.Whole {
				continue
			}
			say("no rows from before %s were deleted", t.Before.UTC().Format(time.RFC3339))
			continue
		}
		say("%s from before %s %sdeleted; delivered up to %s", terminal.Counted(t.Deleted, "row"), t.Before.UTC().Format(time.RFC3339), would, t.Confirmed)
	}
}
