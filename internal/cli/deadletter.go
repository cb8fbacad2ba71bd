package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

func (a *app) deadLetter() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letter",
		Short: "List, show, resend and release dead letters",
		Long: `Dead-letter reads dead_letter_topic. With on_bad_record: dead-letter, the relay sends rows and records
there that it cannot deliver. Fix the cause, then resend them. With on_bad_record: park, later records of
the same key follow them; release or discard then unparks the key.`,
		Example: `  outbox-cdc dead-letter list -c outbox-cdc.yaml
  outbox-cdc dead-letter resend 0:42 -c outbox-cdc.yaml`,
		RunE:                       command.Group,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		Args:                       command.Group,
	}
	cmd.AddCommand(a.deadLetterList(), a.deadLetterShow(), a.deadLetterResend(), a.deadLetterRelease(), a.deadLetterDiscard())
	return cmd
}

// listedKeys is how many parked keys a list names, unless --limit is 0.
const listedKeys = 10

// listLimit is the default of --limit.
const listLimit = 100

func (a *app) deadLetterList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters",
		Long: `List prints the dead letters that have not been resent, newest last. For each it prints the partition and
offset, the time, the topic that the record was meant for, its key and id, the transaction and row, and
the reason. It changes nothing. The user of the broker needs the right to read the topic (Kafka: Read and Describe).`,
		Example: `  outbox-cdc dead-letter list -c outbox-cdc.yaml --since 24h
  outbox-cdc dead-letter list -c outbox-cdc.yaml --topic outbox.event.order --reason MESSAGE_TOO_LARGE --json`,
		Args: command.NoArgs,
	}
	l := a.deadLetters(cmd)
	limit := cmd.Flags().Int("limit", listLimit, "list at most this many, the newest (0: all, and all parked keys)")
	cmd.Flags().BoolVar(&l.filter.Resent, "resent", false, "also list dead letters that were resent, released or discarded, and those of keys that were parked under another slot")
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := l.open(cmd.Context())
		if errors.Is(err, sink.ErrMissing) { // the relay has sent none: the topic may be created with the first one
			fmt.Fprintf(l.stderr, "no dead letters: topic %s does not exist\n", l.sending.DeadLetterTopic)
			return nil
		}
		if err != nil {
			return err
		}
		defer l.close()
		return l.list(cmd.Context(), *limit, *asJSON)
	}
	return cmd
}

func (a *app) deadLetterShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show partition:offset",
		Short: "Show one dead letter",
		Long: `Show prints a dead letter with its headers and its value. Text is printed as it is, with control
characters escaped; other bytes are printed in hexadecimal. Long values are cut. With --raw, show writes
only the bytes of the value. Values contain the payload of the row.`,
		Example: `  outbox-cdc dead-letter show 0:42 -c outbox-cdc.yaml
  outbox-cdc dead-letter show 0:42 -c outbox-cdc.yaml --raw > payload.json`,
		Args: places(1, 1),
	}
	l := a.deadLetters(cmd)
	raw := cmd.Flags().Bool("raw", false, "write only the bytes of the value")
	asJSON := cmd.Flags().Bool("json", false, "print JSON, with the whole value")
	cmd.MarkFlagsMutuallyExclusive("raw", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l.filter.Resent = true
		if err := l.open(cmd.Context(), args...); err != nil {
			return err
		}
		defer l.close()
		return l.show(cmd.Context(), *raw, *asJSON)
	}
	return cmd
}

// places is the Args of a command that takes from least to most dead letters as partition:offset.
func places(least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.New("name a dead letter by partition and offset, as dead-letter list prints them: 0:42")
		}
		for _, arg := range args {
			if _, err := deadletter.ParsePartitionOffset(arg); err != nil {
				return err
			}
		}
		return nil
	}
}

// deadLetters reads the dead-letter topic for one command.
type deadLetters struct {
	*app
	settings *command.Settings
	filter   deadletter.Filter
	since    *time.Time

	cfg     *config.Config
	sending relay.Config
	log     *slog.Logger
	topic   *deadletter.Topic
	parked  parking.Record // after a dead letter of a key that was parked was found
}

// deadLetters adds the flags that filter dead letters to cmd.
func (a *app) deadLetters(cmd *cobra.Command) *deadLetters {
	l := &deadLetters{app: a, settings: command.ConfigFlags(cmd, "dsn", command.Sink)}
	if cmd.Name() == "show" {
		return l
	}
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Topic, "topic", "", "only records that were meant for this `topic`, and rows that have parked a key of it")
	flags.StringVar(&l.filter.Reason, "reason", "", "only dead letters whose reason contains this `text`")
	l.since = timeFlag(cmd, "since", "only dead letters from this `time` on: 2026-01-31T14:00:00Z, or 2h for two hours ago")
	return l
}

// open loads the configuration and opens the topic. Each of at is a partition and offset.
func (l *deadLetters) open(ctx context.Context, at ...string) error {
	for _, text := range at {
		p, err := deadletter.ParsePartitionOffset(text)
		if err != nil {
			return err // Args has parsed it before
		}
		l.filter.Offsets = append(l.filter.Offsets, p)
	}
	if l.since != nil {
		l.filter.Since = *l.since
	}
	var err error
	if l.cfg, err = l.settings.Load(l.environ); err != nil {
		return command.Failed(err)
	}
	if l.sending, err = l.cfg.Sending(); err != nil {
		return command.Failed(err)
	}
	l.log = command.NewLogger(l.cfg, l.stderr)
	ctx, cancel := context.WithTimeout(ctx, l.sending.StartupTimeout)
	defer cancel()
	l.filter.Parked, l.filter.Relay = l.parkedKeys, l.cfg.Source.Slot
	if l.topic, err = deadletter.Open(ctx, l.sending.Sink, l.sending.DeadLetterTopic, l.log); err != nil {
		return l.failed(err)
	}
	return nil
}

// parkedKeys is Parked of the filter. It keeps the parked keys.
func (l *deadLetters) parkedKeys(ctx context.Context) (*parking.Record, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, l.sending.StartupTimeout)
	defer cancel()
	found, began, err := relay.ReadParkedKeys(ctx, l.sending, l.log)
	if found != nil {
		l.parked = *found
	}
	return found, began, err
}

func (l *deadLetters) close() { _ = l.topic.Close() }

// failed returns the failure of a request to the broker.
func (l *deadLetters) failed(err error) *command.ExitError {
	f := command.Failed(err)
	f.Object = "topic " + l.sending.DeadLetterTopic
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		f.Exit, f.Advice, f.Next = exit.Usage, "", "read the dead letters with the tools of the broker, and resend their rows by outbox-cdc replay (docs/sinks.md)"
	case errors.Is(err, deadletter.ErrNotFound):
		f.Exit, f.Next = exit.Usage, "outbox-cdc dead-letter list --resent --limit 0"
	case errors.Is(err, sink.ErrMissing):
		f.Advice = "" // of the sink, which would have the topic created
		f.Next = "check dead_letter_topic; before the first dead letter the topic need not exist"
	}
	return f
}

func (l *deadLetters) list(ctx context.Context, limit int, asJSON bool) error {
	selection, err := l.topic.Select(ctx, l.filter)
	if err != nil {
		return l.failed(err)
	}
	found := selection.Len()
	if limit > 0 {
		selection.KeepNewest(limit)
	}
	listed := make([]*deadletter.DeadLetter, 0, selection.Len())
	err = l.topic.Read(ctx, selection, func(dead *deadletter.DeadLetter) error {
		dead.Record.Value = nil
		listed = append(listed, dead)
		return nil
	})
	if err != nil {
		return l.failed(err)
	}
	slices.SortStableFunc(listed, func(a, b *deadletter.DeadLetter) int { return a.At.Compare(b.At) })
	for _, dead := range listed {
		if asJSON {
			if err := printJSON(l.stdout, l.object(dead)); err != nil {
				return err
			}
			continue
		}
		l.printLine(dead)
	}
	l.warnHidden(selection)
	if !asJSON {
		l.summarize(len(listed), found, selection)
		l.printParked(limit == 0)
	}
	return nil
}

// warnHidden prints the partitions that could not be read to their end.
func (l *deadLetters) warnHidden(selection *deadletter.Selection) {
	for _, err := range selection.Hidden {
		fmt.Fprintf(l.stderr, "warning: %s\n", err)
	}
}

// summarize prints how many dead letters there are, also those that are not listed.
func (l *deadLetters) summarize(listed, found int, selection *deadletter.Selection) {
	line := terminal.Counted(listed, "dead letter")
	if listed == 0 {
		line = "no dead letters"
	}
	if listed < found {
		line = fmt.Sprintf("the newest %d of %d dead letters; --limit 0 lists all", listed, found)
	}
	var others []string
	for _, other := range []struct {
		number int
		what   string
	}{{selection.AlreadyResent, "resent"}, {selection.Released, "released or discarded"}, {selection.Elsewhere, "parked under another slot"}} {
		if other.number > 0 {
			others = append(others, fmt.Sprintf("%d %s", other.number, other.what))
		}
	}
	if len(others) > 0 {
		line += "; not listed: " + strings.Join(others, ", ") + " (--resent lists them)"
	}
	fmt.Fprintln(l.stderr, line)
}

// printParked prints the parked keys, or the first of them, if dead letters of any were found.
func (l *deadLetters) printParked(all bool) {
	terms := catalog.Terms{Arguments: l.cfg.Arguments()}
	for i, p := range l.parked.Parkings {
		if i == listedKeys && !all {
			fmt.Fprintf(l.stdout, "%d more keys are parked; --limit 0 lists all\n", len(l.parked.Parkings)-i)
			return
		}
		fmt.Fprintf(l.stdout, "parked since %s: key %s of topic %s, id %s, behind %s: %s\n  to release it: %s\n",
			at(p.Since), visible([]byte(p.Key.Key)), oneLine(p.Topic), p.ShortID(), p.Bad, oneLine(p.Reason), terms.Fill(oneLine(p.Instruction())))
		if !p.Truncated && !p.IsBadDiscarded() {
			fmt.Fprintf(l.stdout, "  to drop its first record: %s\n", terms.Fill(p.InstructDiscard()))
		}
		if p.Waits != "" {
			fmt.Fprintf(l.stdout, "  its release waits: %s\n", oneLine(p.Waits))
		}
	}
}

func (l *deadLetters) show(ctx context.Context, raw, asJSON bool) error {
	selection, err := l.topic.Select(ctx, l.filter)
	if err != nil {
		return l.failed(err)
	}
	var dead *deadletter.DeadLetter
	err = l.topic.Read(ctx, selection, func(found *deadletter.DeadLetter) error {
		dead = found
		return nil
	})
	switch {
	case err != nil:
		return l.failed(err)
	case dead == nil:
		return l.failed(fmt.Errorf("%w at %s of topic %s: it has just expired", deadletter.ErrNotFound, l.filter.Offsets[0], l.sending.DeadLetterTopic))
	case raw:
		_, err = l.stdout.Write(dead.Record.Value)
		return err
	case asJSON:
		object := l.object(dead)
		object.Value = new(jsonText(dead.Record.Value))
		return printJSON(l.stdout, object)
	}
	l.printWhole(dead)
	return nil
}

// destination returns the topic that a record was meant for, or the table of a row that did not become a record.
func destination(dead *deadletter.DeadLetter) string {
	return cmp.Or(dead.Record.Topic, "row of "+dead.Table)
}
