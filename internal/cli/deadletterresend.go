package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func (a *app) deadLetterResend() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resend [partition:offset…]",
		Short: "Resend dead letters",
		Long: `Resend sends the named dead letters, or with --all every one that the filters select, to the topic that
they were meant for. Fix the cause first.

A record keeps its key, headers and timestamp. A row that could not become a record is converted with
the current configuration; resend reads the column types from Postgres. Each gets two more headers,
resent and resent_from, and comes after all records of its key that were sent since. Resend never writes
to position_topic or dead_letter_topic. Without --any-slot it resends only dead letters of source.slot.

When the broker has acknowledged a record, resend marks its dead letter, so that it is neither listed nor
resent again. If you stop resend, or run it twice at the same time, some records may be duplicated. If
some are rejected again, resend sends the others, except later ones of a key that was parked, and exits
with 14, with --dry-run too.`,
		Example: `  outbox-cdc dead-letter resend 0:42 0:43 -c outbox-cdc.yaml
  outbox-cdc dead-letter resend --all --topic outbox.event.order --dry-run -c outbox-cdc.yaml`,
		Args: places(0, math.MaxInt),
	}
	r := &resending{deadLetters: a.deadLetters(cmd), behind: make(map[string]bool)}
	flags := cmd.Flags()
	all := flags.Bool("all", false, "resend every dead letter that the filters select")
	flags.IntVar(&r.limit, "limit", 0, "resend at most this many, the first ones (0: all)")
	flags.BoolVar(&r.filter.Resent, "again", false, "also those that were resent, released or discarded before")
	anySlot := flags.Bool("any-slot", false, "also those of other slots, which other relays have written")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print what would be resent, without sending it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return command.Usage(cmd, errors.New("name dead letters by partition:offset, or use --all"))
		}
		if err := r.open(cmd.Context(), args...); err != nil {
			return err
		}
		defer r.close()
		r.filter.Resendable = true
		if !*anySlot {
			r.filter.Slot = r.cfg.Source.Slot
		}
		return r.run(cmd.Context())
	}
	return cmd
}

// adviseCorrected is for a row that cannot become a record.
const adviseCorrected = `A dead letter has the row as it was written. To send one that you have corrected in the table: outbox-cdc replay --ids … --dsn "$OPERATOR_DSN"`

// A resending is one run of dead-letter resend.
type resending struct {
	*deadLetters
	limit  int
	dryRun bool

	sent, refused int
	advice        []string        // how to fix what was refused, each once
	behind        map[string]bool // parkings with a record that was refused; not ""
}

func (r *resending) run(ctx context.Context) error {
	selection, err := r.topic.Select(ctx, r.filter)
	if err != nil {
		return r.failed(err)
	}
	r.warnHidden(selection)
	if r.limit > 0 {
		selection.KeepOldest(r.limit)
	}
	builder, err := rows.NewRecordBuilder(ctx, r.sending.Rows())
	if err != nil {
		return command.Failed(err)
	}
	if selection.Len() > 0 {
		err = r.send(ctx, selection, builder)
	}
	return r.conclude(ctx, selection, err)
}

// addRecords adds the record of each dead letter to resender. It reports those that cannot become a record, and later ones of their
// parking.
func (r *resending) addRecords(ctx context.Context, selection *deadletter.Selection, builder *rows.RecordBuilder, resender *deadletter.Resender) error {
	return r.topic.Read(ctx, selection, func(dead *deadletter.DeadLetter) error {
		parking := ""
		if dead.Parked != nil && !r.isDiscarded(dead) {
			parking = dead.Parked.Parking
		}
		if reason := r.mustWait(dead, parking); reason != "" {
			r.report(deadletter.Outcome{PartitionOffset: dead.PartitionOffset, Err: errors.New(reason)})
			return nil
		}
		rec, err := builder.Build(ctx, &dead.DeadLetter, r.sending.DeadLetterTopic+"/"+dead.String())
		if _, rejected := errors.AsType[*rows.RejectedError](err); rejected {
			r.advise(adviseCorrected)
			r.report(deadletter.Outcome{PartitionOffset: dead.PartitionOffset, Parking: parking, Err: err})
			return nil
		}
		if err != nil {
			return err
		}
		return resender.Add(ctx, dead.PartitionOffset, parking, rec)
	})
}

// mustWait returns why a dead letter must not be sent, whatever its record is: an earlier record of its key must come before, or may have to.
// It is empty if the dead letter may be sent. parking is the one whose later records must not overtake it.
func (r *resending) mustWait(dead *deadletter.DeadLetter, parking string) string {
	switch {
	case r.behind[parking]:
		return deadletter.ErrBehind.Error()
	case dead.Waiting:
		return "its key is parked, and later records wait behind it: use dead-letter release"
	case dead.Elsewhere:
		return fmt.Sprintf("its key was parked under slot %q: use dead-letter release with the configuration of that relay; if it was this relay, --set source.slot=%[1]s", dead.Slot)
	}
	return ""
}

// send resends the selected dead letters, or reports what would be sent.
func (r *resending) send(ctx context.Context, selection *deadletter.Selection, builder *rows.RecordBuilder) error {
	opening, cancel := context.WithTimeout(ctx, r.sending.StartupTimeout)
	defer cancel()
	reached, err := r.sending.Sink.Open(opening, r.log)
	if err != nil {
		return err
	}
	defer func() { _ = reached.Close() }()
	resender := deadletter.NewResender(reached, r.sending.DeadLetterTopic, r.sending.StartupTimeout, r.dryRun, r.report)
	if err := r.addRecords(ctx, selection, builder, resender); err != nil {
		return err
	}
	return resender.Flush(ctx)
}

// advise keeps advice for the end, each once.
func (r *resending) advise(advice string) {
	if advice != "" && !slices.Contains(r.advice, advice) {
		r.advice = append(r.advice, advice)
	}
}

// report prints the outcome of a dead letter.
func (r *resending) report(o deadletter.Outcome) {
	switch {
	case o.Err != nil:
		r.refused++
		if o.Parking != "" {
			r.behind[o.Parking] = true
		}
		r.advise(sink.AdviceOf(o.Err))
		instruction := ""
		if truncated, ok := errors.AsType[*rows.TruncatedError](o.Err); ok {
			instruction = catalog.Terms{Arguments: r.cfg.Arguments()}.Fill(": send its row from the table: " + catalog.InstructReplayRow(truncated.ID))
		}
		fmt.Fprintf(r.stdout, "%s  rejected: %s%s\n", o.PartitionOffset, oneLine(o.Err.Error()), oneLine(instruction))
		return
	case r.dryRun:
		fmt.Fprintf(r.stdout, "%s  would be sent to %s\n", o.PartitionOffset, o.Topic)
	default:
		fmt.Fprintf(r.stdout, "%s  sent to %s\n", o.PartitionOffset, o.Topic)
	}
	r.sent++
}

// conclude prints the totals, and returns the error of the command.
func (r *resending) conclude(ctx context.Context, selection *deadletter.Selection, err error) error {
	sent, rejected := "resent", "rejected again"
	if r.dryRun {
		sent, rejected = "would be resent", "would be rejected again"
	}
	line := fmt.Sprintf("%d %s, %d rejected", r.sent, sent, r.refused)
	if selection.AlreadyResent > 0 {
		line += fmt.Sprintf(", %d were resent before (--again resends them)", selection.AlreadyResent)
	}
	if selection.Released > 0 {
		line += fmt.Sprintf(", %d were released or discarded (dead-letter list --resent lists them)", selection.Released)
	}
	if selection.Lost > 0 {
		line += fmt.Sprintf(", %d are of keys that were parked under a position store that is lost, or under another one (docs/park.md#after-the-loss-of-the-position-topic)", selection.Lost)
	}
	if selection.Elsewhere > 0 {
		line += fmt.Sprintf(", %d are of keys that were parked under another slot (the configuration of its relay releases them; if it was this relay, --set source.slot to that)", selection.Elsewhere)
	}
	if selection.Parked > 0 {
		line += fmt.Sprintf(", %d are of parked keys (dead-letter release sends them)", selection.Parked)
	}
	if selection.OtherSlots > 0 {
		line += fmt.Sprintf(", %d are of other slots than %s (--any-slot resends them)", selection.OtherSlots, r.filter.Slot)
	}
	fmt.Fprintln(r.stdout, line)
	switch {
	case ctx.Err() != nil:
		f := &command.ExitError{Object: "topic " + r.sending.DeadLetterTopic}
		f.Interrupt("all dead letters were resent", "run the same command again; it skips those that were resent")
		return f
	case err != nil:
		f := r.failed(err)
		f.Next = "fix it, then run the same command again; it skips those that were resent"
		return f
	case r.refused > 0:
		next := "fix what each line says, then run the same command again"
		if r.filter.Resent { // the same command would resend the others, too
			next = "fix what each line says, then resend these by partition and offset"
		}
		return &command.ExitError{
			Err: fmt.Errorf("%s: %s", rejected, terminal.Counted(r.refused, "dead letter")), Exit: exit.BadRecord,
			Advice: strings.Join(r.advice, "\n"), Object: "topic " + r.sending.DeadLetterTopic, Next: next,
		}
	}
	return nil
}
