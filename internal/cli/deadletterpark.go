package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// releaseWait is the default of --wait.
	releaseWait = time.Minute

	// resultInterval is how often the command looks for the result of its request.
	resultInterval = 500 * time.Millisecond
)

func (a *app) deadLetterRelease() *cobra.Command {
	r := &releasing{app: a, action: parking.Release}
	cmd := &cobra.Command{
		Use:   "release --id id",
		Short: "Send the dead letters of a parked key, then unpark it",
		Long: `Release asks the running relay to send the dead letters of a parked key to their topic, in order, and then
to unpark the key. Fix the cause of the first one before. No later record of the key overtakes them.

Release files its request in position_topic and waits for the result. If a record cannot be delivered
again, the relay stops there: that record and those after it stay parked, and release exits with 14. If
no relay is running, the request stays filed, and the relay handles it at its next start; --withdraw
removes it. The user of the broker needs the rights of the relay on position_topic.`,
		Example: `  outbox-cdc dead-letter list -c outbox-cdc.yaml
  outbox-cdc dead-letter release --id 5f0c7a7e -c outbox-cdc.yaml`,
		Args: command.NoArgs,
	}
	r.addFlags(cmd)
	return cmd
}

func (a *app) deadLetterDiscard() *cobra.Command {
	r := &releasing{app: a, action: parking.Discard}
	cmd := &cobra.Command{
		Use:   "discard --id id --row lsn:index",
		Short: "Drop the first dead letter of a parked key, and send the others",
		Long: `Discard drops the first dead letter of a parked key and then does what release does with the others. Use
it if the first record can never be delivered. Consumers never get that record; it stays in
dead_letter_topic until that topic's retention removes it.

If the others cannot be sent, the next one is the first then, and the key stays parked. With --row, the
same command does not drop that one too: status and dead-letter list print the row.`,
		Example: `  outbox-cdc dead-letter list -c outbox-cdc.yaml
  outbox-cdc dead-letter discard --id 5f0c7a7e --row 0/16B3748:0 -c outbox-cdc.yaml`,
		Args: command.NoArgs,
	}
	r.addFlags(cmd)
	cmd.Flags().StringVar(&r.row, "row", "", "do not ask for confirmation if the first record is of the row `lsn:index`")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask for confirmation, whichever rejected record is the first")
	cmd.MarkFlagsMutuallyExclusive("row", "yes")
	return cmd
}

// A releasing is one run of dead-letter release or discard.
type releasing struct {
	*app
	settings   *command.Settings
	action     parking.Action
	key, topic string
	id         string
	wait       time.Duration
	row        string
	yes        bool
	withdraw   bool
	stdin      io.Reader

	sending relay.Config
	keys    *relay.ParkedKeys
	object  string // that the outcome is about: the position topic, or the topic of the key once it is found
}

func (r *releasing) addFlags(cmd *cobra.Command) {
	r.settings = command.ConfigFlags(cmd, "brokers")
	flags := cmd.Flags()
	flags.StringVar(&r.key, "key", "", "`key` in place of --id, as dead-letter list prints it: text, 0x… in hexadecimal, or quoted with escapes")
	flags.StringVar(&r.topic, "topic", "", "`topic` beside --key, if the key is parked in several topics")
	flags.StringVar(&r.id, "id", "", "`id` of the parked key, as dead-letter list, status and the live page show it")
	flags.DurationVar(&r.wait, "wait", releaseWait, "`time` to wait for the relay's result")
	flags.BoolVar(&r.withdraw, "withdraw", false, "remove a filed request for the key, which no relay has handled yet")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.Changed("key") == flags.Changed("id") {
			return command.Usage(cmd, errors.New("name the parked key with --id; dead-letter list shows the ids"))
		}
		r.stdin = cmd.InOrStdin()
		return r.run(cmd.Context())
	}
}

func (r *releasing) run(ctx context.Context) error {
	cfg, err := r.settings.Load(r.environ)
	if err != nil {
		return command.Failed(err)
	}
	if r.sending, err = cfg.Sending(); err != nil {
		return command.Failed(err)
	}
	if r.sending.Positions.IsZero() {
		return mistake(errors.New("position_topic is empty, so no key can be parked"))
	}
	r.object = "position topic " + r.sending.Positions.Topic
	opening, cancel := context.WithTimeout(ctx, r.sending.StartupTimeout)
	defer cancel()
	if r.keys, err = relay.OpenParkedKeys(opening, r.sending, command.NewLogger(cfg, r.stderr)); err != nil {
		return r.failed(err)
	}
	defer func() { _ = r.keys.Close() }()
	found, filed, err := r.keys.Read(opening)
	if err != nil {
		return r.failed(err)
	}
	parked, err := r.find(found.Parkings)
	if err != nil {
		return err
	}
	r.object = "topic " + oneLine(parked.Topic)
	i := slices.IndexFunc(filed, func(q parking.Request) bool { return q.Parking == parked.ID })
	switch {
	case r.withdraw && i < 0:
		return r.outcome("nothing to withdraw", errors.New("no request is filed for the key"), exit.Usage, "")
	case r.withdraw:
		if err := r.keys.Withdraw(ctx, filed[i].ID); err != nil {
			return r.failed(err)
		}
		fmt.Fprintln(r.stdout, "request withdrawn")
		return nil
	case i >= 0:
		return r.outcome("a request is filed already", fmt.Errorf("a request to %s the key was filed at %s, and no relay has handled it", filed[i].Action, at(filed[i].FiledAt)),
			exit.Unexpected, "start the relay, or remove the request with --withdraw")
	case r.row != "" && r.row != parked.Bad.Place() && slices.ContainsFunc(parked.Discarded, func(d parking.Discarded) bool { return d.Place() == r.row }):
		return r.outcome("discarded before", fmt.Errorf("the record of row %s was discarded before; no other one was dropped", r.row), exit.Usage,
			"the key is parked behind "+parked.Bad.String()+"; "+oneLine(parked.Instruction()))
	case r.row != "" && r.row != parked.Bad.Place():
		return r.outcome("another record is the first", fmt.Errorf("the first record of the key is not of row %s, but of %s: %s", r.row, parked.Bad.Place(), oneLine(parked.Reason)),
			exit.Usage, "nothing was dropped. To drop that one: "+parked.InstructDiscard())
	case !r.confirm(parked):
		return &command.ExitError{Err: errors.New("nothing was changed"), Exit: exit.Usage, Next: "confirm with " + parked.InstructDiscard()}
	}
	req := parking.Request{ID: uuid.NewString(), Action: r.action, Parking: parked.ID, FiledAt: time.Now().UTC()}
	if r.action == parking.Discard && !r.yes {
		req.Row = parked.Bad.Place()
	}
	if err := r.keys.File(ctx, req); err != nil {
		return r.failed(err)
	}
	return r.await(ctx, parked, req)
}

// find returns the parked key that the flags name.
func (r *releasing) find(all []parking.Parking) (parking.Parking, error) {
	named := slices.DeleteFunc(slices.Clone(all), func(p parking.Parking) bool {
		if r.id != "" {
			return !strings.HasPrefix(p.ID, r.id)
		}
		return r.topic != "" && p.Topic != r.topic || p.Key.Key != r.key && p.Key.Key != unescapeKey(r.key)
	})
	what := fmt.Sprintf("key %q", r.key)
	if r.id != "" {
		what = fmt.Sprintf("a key with the id %q", r.id)
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return parking.Parking{}, r.outcome("not parked", fmt.Errorf("%s is not parked", what), exit.Usage, fmt.Sprintf("%d keys are parked: outbox-cdc dead-letter list", len(all)))
	}
	var topics []string
	for _, p := range named {
		topics = append(topics, p.Topic)
	}
	return parking.Parking{}, r.outcome("several keys", fmt.Errorf("%s is parked in several topics: %s", what, strings.Join(topics, ", ")), exit.Usage, "name one of them with --id; dead-letter list shows the ids")
}

// unescapeKey returns the key that visible has written as text, in hexadecimal or quoted, or text.
func unescapeKey(text string) string {
	digits, ok := strings.CutPrefix(text, "0x")
	if key, err := hex.DecodeString(digits); ok && err == nil {
		return string(key)
	}
	if key, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		return key
	}
	return text
}

// confirm asks whether to drop a record.
func (r *releasing) confirm(p parking.Parking) bool {
	if r.action != parking.Discard || r.yes || r.row != "" {
		return true
	}
	if !command.IsTerminal(r.stdin) || !command.IsTerminal(r.stderr) {
		return false
	}
	fmt.Fprintf(r.stderr, "The first record of key %s in topic %s will never be delivered: %s, %s.\nDrop it and send the others? [y/N] ",
		visible([]byte(p.Key.Key)), oneLine(p.Topic), p.Bad, oneLine(p.Reason))
	answer, _ := bufio.NewReader(r.stdin).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// await waits for the result of a request, and prints it.
func (r *releasing) await(ctx context.Context, p parking.Parking, req parking.Request) error {
	waiting, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	ticker := time.NewTicker(resultInterval)
	defer ticker.Stop()
	waits := "" // why the relay waits
	for {
		found, filed, err := r.keys.Read(waiting)
		if err == nil {
			if now := waitsFor(found.Parkings, p.ID); now != waits {
				if waits = now; now != "" {
					fmt.Fprintf(r.stderr, "the release waits: %s\n", now)
				}
			}
			if i := slices.IndexFunc(found.Results, func(res parking.Result) bool { return res.Request == req.ID }); i >= 0 {
				if i := slices.IndexFunc(found.Parkings, func(q parking.Parking) bool { return q.ID == p.ID }); i >= 0 {
					p = found.Parkings[i]
				}
				return r.conclude(p, found.Results[i])
			}
			gone := !slices.ContainsFunc(filed, func(q parking.Request) bool { return q.ID == req.ID })
			if gone && !slices.ContainsFunc(found.Parkings, func(q parking.Parking) bool { return q.ID == p.ID }) {
				fmt.Fprintln(r.stdout, "the key is not parked any more")
				return nil
			}
		}
		select {
		case <-ticker.C:
		case <-waiting.Done():
			return r.stopWaiting(ctx, waits)
		}
	}
}

// stopWaiting returns the error for a request that is still filed when the command ends. waits is why the relay waits, or "".
func (r *releasing) stopWaiting(ctx context.Context, waits string) *command.ExitError {
	next := "the request stays filed: a running relay handles it within a second, and any other at its next start. To remove it: --withdraw"
	if waits != "" {
		next = "the request stays filed: the relay releases the key when nothing is in the way any more. To remove it: --withdraw"
	}
	switch {
	case ctx.Err() != nil:
		f := &command.ExitError{Object: r.object}
		f.Interrupt("the relay reported a result", next)
		return f
	case waits != "":
		return r.outcome("the release waits", errors.New(waits), exit.Unexpected, next)
	}
	return r.outcome("no result", fmt.Errorf("no relay has handled the request within %s", r.wait), exit.Unexpected, next)
}

// waitsFor returns why a release of a parking waits, or "".
func waitsFor(all []parking.Parking, id string) string {
	i := slices.IndexFunc(all, func(p parking.Parking) bool { return p.ID == id })
	if i < 0 {
		return ""
	}
	return oneLine(all[i].Waits)
}

// conclude prints the result of a request, and returns the error of the command. p is the parked key as it is by then.
func (r *releasing) conclude(p parking.Parking, res parking.Result) error {
	if res.Dropped != "" {
		fmt.Fprintf(r.stdout, "dropped the record of %s\n", oneLine(res.Dropped))
	}
	switch res.Outcome {
	case parking.Released:
		fmt.Fprintf(r.stdout, "%s sent to %s and acknowledged; the key is not parked any more\n", terminal.Counted(res.Released, "record"), p.Topic)
		return nil
	case parking.Stopped:
		fmt.Fprintf(r.stdout, "%s sent to %s and acknowledged\n", terminal.Counted(res.Released, "record"), p.Topic)
		next := fmt.Sprintf("that record and those after it stay parked. Fix the topic or the configuration and release the key again, "+
			"or, after a replay if you have corrected its row in the table, drop the record: %s", p.InstructDiscard())
		if p.Truncated {
			next = oneLine(p.Instruction()) + " (docs/park.md#a-truncated-dead-letter)"
		}
		return r.outcome("stopped at a record that cannot be delivered", errors.New(oneLine(res.Reason)), exit.BadRecord, next)
	case parking.NoKey:
		return r.outcome("not parked", errors.New("the key is not parked any more, or was parked again meanwhile"), exit.Unexpected, "outbox-cdc dead-letter list")
	case parking.Failed:
	}
	next := oneLine(p.Instruction())
	if r.action == parking.Discard && res.Dropped == "" {
		next = "fix the cause, then " + p.InstructDiscard()
	}
	if res.Released > 0 {
		fmt.Fprintf(r.stdout, "%s sent to %s and acknowledged\n", terminal.Counted(res.Released, "record"), p.Topic)
	}
	return r.outcome("not released", errors.New(oneLine(res.Reason)), exit.Unexpected, "the key stays parked behind "+p.Bad.String()+"; "+next)
}

func (r *releasing) outcome(what string, err error, exit int, next string) *command.ExitError {
	return &command.ExitError{Err: err, Exit: exit, What: what, Object: r.object, Next: next}
}

// failed returns the failure of a request to the broker.
func (r *releasing) failed(err error) *command.ExitError {
	f := command.Failed(err)
	f.Object = "position topic " + r.sending.Positions.Topic
	if errors.Is(err, sink.ErrUnreachable) {
		f.Object = r.sending.Sink.String()
	}
	return f
}
