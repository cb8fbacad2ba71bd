package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A recovery is one run of recover.
type recovery struct {
	*app
	settings *command.Settings
	dryRun   bool
	assume   catalog.Assumptions

	cfg relay.Config
	log *slog.Logger
}

func (a *app) recover() *cobra.Command {
	r := &recovery{app: a}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Create a new slot after the old one was lost, and refill the gap from the table",
		Long: `Recover sends the rows that a lost replication slot had not delivered, or that the publication has left
out. Run it after exit code 11, 13 or 15, before you start the relay again. It creates a new slot, sends
the rows that the relay's position record does not show as delivered, in the order in which they were
inserted and with the header refilled: true, and records the position of the new slot. The next run
continues there without a gap.

Recover prints first what is missing. It may be interrupted: the same command continues. It changes nothing
if the slot continues at the position record with every row, or if it cannot find out which rows are missing.

The table needs the columns xid and position, as outbox-cdc migrate creates them. The role needs REPLICATION,
and SELECT on the table, which a relay's role does not have: give the --dsn of an operator (docs/roles.md).`,
		Example: `  outbox-cdc recover -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --dry-run
  outbox-cdc recover -c outbox-cdc.yaml --dsn "$OPERATOR_DSN"`,
		Args: command.NoArgs,
	}
	r.settings = command.ConfigFlags(cmd, "dsn", "publication", "slot", command.Sink)
	flags := cmd.Flags()
	flags.BoolVar(&r.dryRun, "dry-run", false, "print which rows are missing and how many records would go to each topic, and change nothing")
	flags.BoolVar(&r.assume.Unpruned, "assume-unpruned", false, "assume that no undelivered row was deleted from the table, although it has no delivered row left")
	flags.BoolVar(&r.assume.Upgraded, "assume-upgraded", false, "assume that the server was upgraded with pg_upgrade from the one of the position record")
	flags.BoolVar(&r.assume.Restored, "assume-restored", false, "assume that the table was restored from a dump of the server of the position record, and that nothing has written to it since")
	cmd.MarkFlagsMutuallyExclusive("assume-upgraded", "assume-restored")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) }
	return cmd
}

func (r *recovery) run(ctx context.Context) error {
	cfg, err := r.settings.Load(r.environ)
	if err != nil {
		return command.Failed(err)
	}
	if r.cfg, err = cfg.Relay(); err != nil {
		return command.Failed(err)
	}
	r.cfg.Assume = r.assume
	r.log = command.NewLogger(cfg, r.stderr)
	r.cfg.MemoryChanged = r.memoryLimiter(cfg)
	loss, err := relay.FindLoss(ctx, r.cfg, r.log)
	if errors.Is(err, refill.ErrNothingLost) {
		fmt.Fprintf(r.stdout, "Nothing to recover: slot %q continues at the position record.\n", r.cfg.Source.Slot)
		if added, ok := errors.AsType[*catalog.LeftOutError](err); ok {
			fmt.Fprintln(r.stdout, catalog.Terms{Arguments: cfg.Arguments()}.Fill("But "+added.Error()+"."))
		}
		return nil
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	r.explain(loss)
	if r.dryRun {
		return r.preview(ctx, loss)
	}
	return r.refill(ctx)
}

// explain prints which rows are missing, and why.
func (r *recovery) explain(l *refill.Loss) {
	record := l.Record
	fmt.Fprintf(r.stdout, "Position record: %s on timeline %d of system %s, written at %s\n",
		record.EndLSN, record.Timeline, record.SystemID, record.WrittenAt.UTC().Format(time.RFC3339))
	fmt.Fprintf(r.stdout, "Slot %q: %s\n", r.cfg.Source.Slot, oneLine(l.Reason()))
	fmt.Fprintf(r.stdout, "Missing: rows committed after %s, up to now (%s)\n", record.EndLSN, l.WALEnd)
	for _, t := range l.Tables {
		fmt.Fprintf(r.stdout, "  %s of %s not delivered at %s, of the position record's last snapshot; some may have been delivered after it: in Kafka, recover finds and skips them\n", terminal.Counted(t.Rows, "row"), t.Table, l.Snapshot.EndLSN)
	}
	if errors.Is(l.Cause, replication.ErrSlotMissing) && l.Snapshot.Witness == (checkpoint.Witness{}) {
		fmt.Fprintln(r.stdout, "If this server was restored from a backup that has no slots, rows that were written to it before now may count as delivered: see docs/recover.md#the-last-delivered-row-is-missing")
	}
	if l.Resumes {
		fmt.Fprintln(r.stdout, "An earlier recover was interrupted. This one continues after the acknowledged rows.")
	}
}

// preview prints how many records would go to each topic.
func (r *recovery) preview(ctx context.Context, l *refill.Loss) error {
	counts := make(topicCounts)
	rejected := 0
	err := l.Preview(ctx, func(rec *sink.Record, reason error) {
		if reason != nil {
			rejected++
			return
		}
		counts.add(rec)
	})
	counts.print(r.stdout)
	if rejected > 0 {
		fmt.Fprintf(r.stdout, "%s cannot become records; see on_bad_record\n", terminal.Counted(rejected, "row"))
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	return nil
}

// refill sends the missing rows and shows the progress.
func (r *recovery) refill(ctx context.Context) error {
	rel, err := relay.New(r.cfg, r.log)
	if err != nil {
		return command.Failed(err)
	}
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { // waited for below
		defer close(watched)
		r.showProgress(watching, rel)
	}()
	err = rel.Recover(ctx)
	stop()
	<-watched
	if errors.Is(err, refill.ErrNothingLost) { // another process has recovered it meanwhile
		err = nil
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	st, others := rel.Stat(), ""
	sent := int(st.Sink.Acked().Records)
	if recognized := int(st.Rows) - sent; recognized > 0 {
		others = fmt.Sprintf("; the broker had %s already", terminal.Counted(recognized, "row"))
	}
	if st.DeadLetters > 0 {
		others += fmt.Sprintf("; %d of them are dead letters, see outbox-cdc dead-letter list", st.DeadLetters)
	}
	fmt.Fprintf(r.stdout, "Refilled: %s sent and acknowledged, in %.1f s%s. Start the relay: it continues at the new slot.\n",
		terminal.Counted(sent, "record"), time.Since(began).Seconds(), others)
	return nil
}

// progressInterval is how often the progress is shown.
const progressInterval = 200 * time.Millisecond

func (r *recovery) showProgress(ctx context.Context, rel *relay.Relay) {
	p := command.NewProgress(r.stderr, r.environ, r.log)
	p.Phase = "recover"
	defer p.End()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if refill := rel.Stat().Refill; refill != nil {
				p.Show(ctx, "rows", int(refill.Rows), int(refill.Total))
			}
		case <-ctx.Done():
			return
		}
	}
}

// failed returns the error block of a recover that stops because of err.
func (r *recovery) failed(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	f.Where = []string{
		fmt.Sprintf("source: %s, publication %s, slot %s", command.Address(r.cfg.Source.Conn), r.cfg.Source.Publication, r.cfg.Source.Slot),
		"sink: " + r.cfg.Sink.String(),
	}
	f.Terms = catalog.Terms{Slot: r.cfg.Source.Slot, Publication: r.cfg.Source.Publication}
	f.Object = "slot " + r.cfg.Source.Slot
	switch {
	case ctx.Err() != nil:
		f.Interrupt("all rows were acknowledged", "to continue: the same command")
	case errors.Is(err, catalog.ErrPruned), errors.Is(err, catalog.ErrNoWitness), errors.Is(err, catalog.ErrParts):
		f.What, f.Next = "the gap cannot be refilled", "nothing was changed; "+f.Next
	case errors.Is(err, catalog.ErrRefill):
		f.What, f.Next = "the gap cannot be refilled", "nothing was changed; see docs/recover.md#recover-refuses"
	}
	return f
}
