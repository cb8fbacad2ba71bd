package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/prune"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/migrations"
)

// pruneAge is how long a delivered row stays by default: after a slot was lost on a Friday evening,
// there is a week to send rows again.
const pruneAge = 7 * 24 * time.Hour

func (a *app) prune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove delivered rows, and create the partitions of coming days",
		Long: `Prune removes the rows that are older than --older-than and whose delivery the slot has confirmed.
Partitions by age go whole, the rows of other tables are deleted in short transactions; where the
table was made by migrate up --partitioned, the partitions of coming days are created first. Run it
once a day, beside the relay and the writers; it may be stopped or killed, and run again.

It works while the relay runs: nothing else confirms. It ends with exit code 2 if the relay's
publication leaves out rows of a table: those were never delivered. It needs the rights to select
and delete rows, for partitions the owner of the table.`,
		Example: `  outbox-cdc prune -c outbox-cdc.yaml --dsn postgres://owner@db/app --dry-run
  outbox-cdc prune --dsn postgres://owner@db/app --publication outbox_cdc --slot outbox_cdc --older-than 72h
  outbox-cdc prune -c outbox-cdc.yaml --table billing.outbox --older-than 0s`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "table")
	var opts prune.Config
	flags := cmd.Flags()
	flags.DurationVar(&opts.OlderThan, "older-than", pruneAge, "remove rows from this `age` on; with 0s all that are delivered")
	flags.StringVar(&opts.AgeColumn, "age-column", "created_at", "`column` with the time at which the row was written")
	flags.StringArrayVar(&opts.Slots, "also-slot", nil, "another `slot` that delivers these rows: they go when it has confirmed them, too (repeatable)")
	flags.IntVar(&opts.Days, "ahead", migrations.InitialDays, "for how many `days` after today partitions are to be there")
	flags.IntVar(&opts.Batch, "batch", 5000, "about how many `rows` one transaction deletes")
	flags.DurationVar(&opts.Wait, "wait", time.Minute, "how much `time` the relay may take to confirm what is in the log now")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "only say what would be done")
	asJSON := flags.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if opts.OlderThan < 0 || opts.Days < 0 || opts.Batch <= 0 || opts.Wait <= 0 {
			return command.Usage(cmd, errors.New("--older-than and --ahead cannot be negative, --batch and --wait must be positive"))
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
		return mistake(errors.New("without a table, as with outbox.messages, there is nothing to prune"))
	}
	bar := command.NewProgress(a.stderr, a.environ, command.NewLogger(cfg.Log, a.stderr))
	bar.Phase = "prune"
	opts.Progress = func(table string, done, total int) { bar.Show(ctx, table+", pages", done, total) }

	report, err := prune.Run(ctx, opts)
	bar.End()
	if asJSON {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(report); err != nil {
			return err
		}
	} else {
		printPruned(a.stdout, report)
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
		f.Exit, f.What, f.Object = relay.ExitUnexpected, "not confirmed", "slot "+refusal.Slot
		f.Next = "see that the relay runs and has caught up, then prune again (docs/runbook.md#prune-removes-nothing)"
	}
	if errors.Is(err, prune.ErrConfig) {
		f.Exit, f.Next = relay.ExitUsage, "see outbox-cdc prune --help"
	}
	if refusal, ok := errors.AsType[*prune.NotPublishedError](err); ok {
		f.Object, f.Next = "publication "+refusal.Publication, "resend the rows that were not published, then prune (docs/runbook.md#prune-refuses-a-table)"
		f.Advice = "Rows that are inserted while the relay's publication leaves them out are never delivered. Before you prune:\n" +
			"  - If another relay delivers the table, give its --publication and --slot.\n" +
			"  - Otherwise change the publication, then resend the earlier rows with outbox-cdc replay."
	}
	return f
}

// printPruned says in words what was done.
func printPruned(w io.Writer, report prune.Report) {
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
			say("partition %s is old enough and in use: the next prune drops it", p.Name)
		}
		if t.Busy > 0 {
			say("%d transactions met rows in use: the next prune deletes those", t.Busy)
		}
		if t.Confirmed == "" && t.Deleted == 0 && len(t.Dropped) == 0 {
			say("nothing from before %s was removed", t.Before.UTC().Format(time.RFC3339))
			continue
		}
		say("%d rows from before %s %sdeleted; delivered up to %s", t.Deleted, t.Before.UTC().Format(time.RFC3339), would, t.Confirmed)
	}
}
