package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func (a *app) deadLetterResend() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resend [partition:offset…]",
		Short: "Send again what was put aside",
		Long: `Resend sends dead letters again: those that are named, or with --all every one that the filters
mean. Correct first why they were put aside.

A record goes to the topic that it was to go to, with its key, headers and timestamp. A row that did
not become a record becomes one by the configuration as it is now; the types of its columns are asked
of Postgres. Neither goes to position_topic or dead_letter_topic, and only dead letters of source.slot
are sent, unless --any-slot is given. Both have two headers more, resent and resent_from. What is still refused stays, the
others go, and the exit code is 14 then.

What was sent again is marked in the dead-letter topic when it is acknowledged, and is neither listed
nor sent once more unless --again is given. Ending this in between, or doing it twice at the same
time, may send some of them twice. A record comes behind everything of its key that was sent since.`,
		Example: `  outbox-cdc dead-letter resend 0:42 0:43 -c outbox-cdc.yaml
  outbox-cdc dead-letter resend --all --topic outbox.event.order --dry-run -c outbox-cdc.yaml`,
		Args: places(0, math.MaxInt),
	}
	r := &resending{letters: a.letters(cmd)}
	flags := cmd.Flags()
	all := flags.Bool("all", false, "all that the filters mean")
	flags.IntVar(&r.limit, "limit", 0, "send so many at most, the first of them; 0: all")
	flags.BoolVar(&r.filter.Resent, "again", false, "also those that were sent again before")
	anySlot := flags.Bool("any-slot", false, "also those of other slots than source.slot, which other relays have written")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print what would be sent, and send nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return command.Usage(cmd, errors.New("say which dead letters: their partitions and offsets, or --all"))
		}
		if err := r.open(cmd.Context(), args...); err != nil {
			return err
		}
		defer r.close()
		if !*anySlot {
			r.filter.Slot = r.cfg.Source.Slot
		}
		return r.run(cmd.Context())
	}
	return cmd
}

// A resending is one run of dead-letter resend.
type resending struct {
	*letters
	limit  int
	dryRun bool

	sent, refused int
	advice        []string // how to fix what was refused, each once
}

func (r *resending) run(ctx context.Context) error {
	survey, err := r.box.Select(ctx, r.filter)
	if err != nil {
		return r.failed(err)
	}
	if r.limit > 0 {
		survey.KeepOldest(r.limit)
	}
	reviver, err := deadletter.NewRecordBuilder(ctx, r.sending, r.sending.DeadLetterTopic)
	if err != nil {
		return command.Failed(err)
	}
	if survey.Len() > 0 {
		send := r.preview
		if !r.dryRun {
			send = r.send
		}
		err = send(ctx, survey, reviver)
	}
	return r.conclude(ctx, survey, err)
}

// preview prints what would be sent.
func (r *resending) preview(ctx context.Context, survey *deadletter.Selection, reviver *deadletter.RecordBuilder) error {
	return r.revived(ctx, survey, reviver, func(at deadletter.PartitionOffset, rec *sink.Record) error {
		r.report(deadletter.Outcome{PartitionOffset: at, Topic: rec.Topic})
		return nil
	})
}

// revived calls fn with the record that each letter of a survey becomes, and reports those that
// become none.
func (r *resending) revived(ctx context.Context, survey *deadletter.Selection, reviver *deadletter.RecordBuilder, fn func(deadletter.PartitionOffset, *sink.Record) error) error {
	return r.box.Read(ctx, survey, func(letter *deadletter.DeadLetter) error {
		rec, err := reviver.Build(ctx, letter)
		if _, refused := errors.AsType[*deadletter.RejectedError](err); refused {
			r.report(deadletter.Outcome{PartitionOffset: letter.PartitionOffset, Err: err})
			return nil
		}
		if err != nil {
			return err
		}
		return fn(letter.PartitionOffset, rec)
	})
}

// send sends the letters of a survey.
func (r *resending) send(ctx context.Context, survey *deadletter.Selection, reviver *deadletter.RecordBuilder) error {
	opening, cancel := context.WithTimeout(ctx, r.sending.StartupTimeout)
	defer cancel()
	reached, err := r.sending.Sink.Open(opening, r.log)
	if err != nil {
		return err
	}
	defer func() { _ = reached.Close() }()
	resender := deadletter.NewResender(reached, r.sending.DeadLetterTopic, r.sending.StartupTimeout, r.report)
	err = r.revived(ctx, survey, reviver, func(at deadletter.PartitionOffset, rec *sink.Record) error { return resender.Add(ctx, at, rec) })
	if err != nil {
		return err
	}
	return resender.Flush(ctx)
}

// report prints what became of a letter, or would become.
func (r *resending) report(o deadletter.Outcome) {
	switch {
	case o.Err != nil:
		r.refused++
		if advised, ok := errors.AsType[sink.Advised](o.Err); ok && !slices.Contains(r.advice, advised.Advice()) {
			r.advice = append(r.advice, advised.Advice())
		}
		fmt.Fprintf(r.stdout, "%s  stays: %s\n", o.PartitionOffset, oneLine(o.Err.Error()))
		return
	case r.dryRun:
		fmt.Fprintf(r.stdout, "%s  would be sent to %s\n", o.PartitionOffset, o.Topic)
	default:
		fmt.Fprintf(r.stdout, "%s  sent to %s\n", o.PartitionOffset, o.Topic)
	}
	r.sent++
}

// conclude prints how many there were, and returns how it ends.
func (r *resending) conclude(ctx context.Context, survey *deadletter.Selection, err error) error {
	sent := "sent again"
	if r.dryRun {
		sent = "would be sent again"
	}
	line := fmt.Sprintf("%d %s, %d stay", r.sent, sent, r.refused)
	if survey.AlreadyResent > 0 {
		line += fmt.Sprintf(", %d were sent again before (--again sends them once more)", survey.AlreadyResent)
	}
	if survey.OtherSlots > 0 {
		line += fmt.Sprintf(", %d are of other slots than %s (--any-slot sends them)", survey.OtherSlots, r.filter.Slot)
	}
	fmt.Fprintln(r.stdout, line)
	switch {
	case ctx.Err() != nil:
		return &command.ExitError{
			Err: errors.New("stopped before all of them were sent"), Exit: relay.ExitUnexpected, What: "interrupted",
			Object: "topic " + r.sending.DeadLetterTopic, Next: "the same command again: what is marked is not sent twice",
		}
	case err != nil:
		f := r.failed(err)
		f.Next = "correct it, then the same command again: what is marked is not sent twice"
		return f
	case r.refused > 0 && !r.dryRun:
		return &command.ExitError{
			Err: fmt.Errorf("%d dead letters are still refused", r.refused), Exit: relay.ExitBadRecord,
			Advice: strings.Join(r.advice, "\n"),
			Object: "topic " + r.sending.DeadLetterTopic, Next: "fix what each line says, then run the same command again",
		}
	}
	return nil
}
