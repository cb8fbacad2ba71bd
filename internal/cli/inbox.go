package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

func (a *app) inbox() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "List, retry and discard events that a consumer could not process; prune its claims",
		Long: `Inbox looks after the tables of the Go package inbox, in the database of a service that consumes
events: inbox_events, where events wait and are parked, and processed_events, the claims.`,
		Example: `  outbox-cdc inbox list --dsn postgres://notifications@db/notifications --parked
  outbox-cdc inbox retry --dsn postgres://notifications@db/notifications --consumer notifications --all`,
		RunE:                       command.Group,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(a.inboxList(), a.inboxRetry(), a.inboxDiscard(), a.inboxPrune())
	return cmd
}

// An inboxCommand is what the verbs of inbox have in common.
type inboxCommand struct {
	*app
	settings         *command.Settings
	schema, consumer *string
}

func (a *app) inboxCommand(cmd *cobra.Command) *inboxCommand {
	return &inboxCommand{
		app: a, settings: command.ConfigFlags(cmd, "dsn"),
		schema: cmd.Flags().String("schema", "", "`schema` of the tables, as in the catalog; without it, that of the search_path"),
	}
}

func (a *app) inboxList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the events that wait or are parked",
		Long: `List prints the events in inbox_events in the order of their arrival: when each came, whose it is, its
type, topic and key, what becomes of it (parked, due, behind an earlier one of its key, or being
tried), how many attempts have failed, and why. No payload is shown.`,
		Example: `  outbox-cdc inbox list --dsn postgres://notifications@db/notifications
  outbox-cdc inbox list --dsn postgres://notifications@db/notifications --consumer notifications --parked --json`,
		Args: command.NoArgs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "only events of this `consumer`")
	parked := cmd.Flags().Bool("parked", false, "only what is parked")
	limit := cmd.Flags().Int("limit", listLimit, "list so many at most, the oldest")
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.inTx(cmd.Context(), func(ctx context.Context, tx pgx.Tx) error {
			list := inbox.Schema(*c.schema).List
			if *parked {
				list = inbox.Schema(*c.schema).ListParked
			}
			events, err := list(ctx, tx, *c.consumer, *limit)
			for i := range events {
				if err := c.printEvent(&events[i], *asJSON); err != nil {
					return err
				}
			}
			return err
		})
	}
	return cmd
}

func (a *app) inboxRetry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry [id...]",
		Short: "Have parked events tried again",
		Long: `Retry has parked events tried again from their first attempt on, by a processor of the consumer that is
running. What waits behind them follows.`,
		Example: `  outbox-cdc inbox retry 0199a3c1-7a00-7000-8000-000000000001 --dsn postgres://notifications@db/notifications --consumer notifications
  outbox-cdc inbox retry --dsn postgres://notifications@db/notifications --consumer notifications --all`,
		Args: eventIDs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "name of the `consumer` (required)")
	all := cmd.Flags().Bool("all", false, "all that are parked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return command.Usage(cmd, errors.New("name the events, or --all"))
		}
		return c.change(cmd, "to be tried again", func(ctx context.Context, tx pgx.Tx) (int, error) {
			return inbox.Schema(*c.schema).Retry(ctx, tx, *c.consumer, parsed(args)...)
		})
	}
	return cmd
}

func (a *app) inboxDiscard() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard id...",
		Short: "Give up events for good",
		Long: `Discard notes events that wait or are parked as processed, without any effect, and lets what waits
behind them follow. It cannot be undone.`,
		Example: `  outbox-cdc inbox discard 0199a3c1-7a00-7000-8000-000000000001 --dsn postgres://notifications@db/notifications --consumer notifications`,
		Args:    eventIDs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "name of the `consumer` (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return command.Usage(cmd, errors.New("name the events, by the ids that inbox list prints"))
		}
		return c.change(cmd, "discarded", func(ctx context.Context, tx pgx.Tx) (int, error) {
			return inbox.Schema(*c.schema).Discard(ctx, tx, *c.consumer, parsed(args)...)
		})
	}
	return cmd
}

func (a *app) inboxPrune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Forget old claims",
		Long: `Prune deletes claims that are older than --older-than from processed_events, in batches, or drops its
partitions, and creates those of the coming days. An event that comes again after its claim is
forgotten has its effects again: --older-than must exceed the retention of the topics, and the time
that relay and consumer may be behind.`,
		Example: `  outbox-cdc inbox prune --dsn postgres://owner@db/notifications --older-than 720h`,
		Args:    command.NoArgs,
	}
	c := a.inboxCommand(cmd)
	horizon := cmd.Flags().Duration("older-than", 0, "forget what is older than this `duration` (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *horizon == 0 {
			return command.Usage(cmd, errors.New("--older-than is needed: more than the retention of the topics"))
		}
		return c.connected(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			done, err := inbox.Schema(*c.schema).Prune(ctx, conn, *horizon)
			fmt.Fprintf(c.stdout, "claims deleted: %d\n", done.Rows)
			for _, name := range done.Dropped {
				fmt.Fprintf(c.stdout, "dropped %s\n", name)
			}
			for _, name := range done.Created {
				fmt.Fprintf(c.stdout, "created %s\n", name)
			}
			return err
		})
	}
	return cmd
}

// eventIDs is the Args of a command that takes ids of events.
func eventIDs(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if id, err := uuid.Parse(arg); err != nil || id == uuid.Nil {
			return fmt.Errorf("%q is no id of an event", arg)
		}
	}
	return nil
}

// parsed returns ids that eventIDs has looked at.
func parsed(args []string) []uuid.UUID {
	ids := make([]uuid.UUID, len(args))
	for i, arg := range args {
		ids[i] = uuid.MustParse(arg)
	}
	return ids
}

// change does something to a number of events, in one transaction, and prints how many that were.
func (c *inboxCommand) change(cmd *cobra.Command, what string, do func(context.Context, pgx.Tx) (int, error)) error {
	if *c.consumer == "" {
		return command.Usage(cmd, errors.New("--consumer is needed: ids are known by consumer"))
	}
	n := 0
	err := c.inTx(cmd.Context(), func(ctx context.Context, tx pgx.Tx) (err error) {
		n, err = do(ctx, tx)
		return err
	})
	if err == nil {
		fmt.Fprintf(c.stdout, "events %s: %d\n", what, n)
	}
	return err
}

func (c *inboxCommand) inTx(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return c.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
}

func (c *inboxCommand) connected(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	cfg, err := c.settings.Load(c.environ)
	if err != nil {
		return command.Failed(err)
	}
	pg, err := cfg.Postgres()
	if err != nil {
		return command.Failed(err)
	}
	conn, err := pgx.ConnectConfig(ctx, pg)
	if err == nil {
		err = errors.Join(do(ctx, conn), conn.Close(ctx))
	}
	if err == nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{"source: " + command.Address(&pg.Config)}
	if errors.Is(err, inbox.ErrNoTable) || errors.Is(err, inbox.ErrOldTable) {
		f.Exit = relay.ExitUsage
		f.Next = "outbox-cdc migrate up --only inbox"
	}
	return f
}

// An inboxEvent is a line of inbox list --json.
type inboxEvent struct {
	ID         string     `json:"id"`
	Consumer   string     `json:"consumer"`
	Type       string     `json:"type"`
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Offset     int64      `json:"offset"`
	Key        jsonText   `json:"key"`
	ReceivedAt time.Time  `json:"received_at"`
	State      string     `json:"state"`
	Attempts   int        `json:"attempts"`
	LastError  string     `json:"last_error,omitempty"`
	DueAt      *time.Time `json:"due_at,omitempty"`
	ParkedAt   *time.Time `json:"parked_at,omitempty"`
}

func (c *inboxCommand) printEvent(e *inbox.WaitingEvent, asJSON bool) error {
	attempts := e.Attempt - 1
	if asJSON {
		return printJSON(c.stdout, inboxEvent{
			ID: e.ID.String(), Consumer: e.Consumer, Type: e.Type, Topic: e.Topic, Partition: e.Partition, Offset: e.Offset,
			Key: jsonText(e.Key), ReceivedAt: e.ReceivedAt.UTC(), State: state(e), Attempts: attempts, LastError: e.LastError,
			DueAt: known(e.DueAt), ParkedAt: known(e.ParkedAt),
		})
	}
	line := fmt.Sprintf("%s  %s  %s  %s  %s key %s  %s", at(e.ReceivedAt), e.ID, oneLine(e.Consumer), oneLine(e.Type), oneLine(e.Topic),
		oneLine(string(e.Key)), state(e))
	if attempts > 0 {
		first, _, _ := strings.Cut(e.LastError, "\n")
		line += fmt.Sprintf(" after %d attempts: %s", attempts, oneLine(first))
	}
	_, err := fmt.Fprintln(c.stdout, line)
	return err
}

// state says what becomes of an event.
func state(e *inbox.WaitingEvent) string {
	switch {
	case !e.ParkedAt.IsZero():
		return "parked"
	case e.DueAt.IsZero():
		return "behind"
	case e.LeasedUntil.After(time.Now()):
		return "trying"
	}
	return "due " + at(e.DueAt)
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
