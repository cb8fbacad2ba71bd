package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func (a *app) inbox() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "List, retry and discard events that a consumer could not process; prune its claims",
		Long: `Inbox works on the tables of the Go package inbox, in the database of a consumer: inbox_events, with
the events that wait or are parked, and processed_events, with the claims.`,
		Example: `  outbox-cdc inbox list --dsn postgres://notifications@db/notifications --parked
  outbox-cdc inbox retry --dsn postgres://notifications@db/notifications --consumer notifications --all`,
		RunE:                       command.Group,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(a.inboxList(), a.inboxRetry(), a.inboxDiscard(), a.inboxPrune())
	return cmd
}

// An inboxCommand has what the inbox commands have in common.
type inboxCommand struct {
	*app
	settings         *command.Settings
	schema, consumer *string
}

func (a *app) inboxCommand(cmd *cobra.Command) *inboxCommand {
	return &inboxCommand{
		app: a, settings: command.ConfigFlags(cmd, "dsn"),
		schema: cmd.Flags().String("schema", "", "`schema` of the tables, as in the catalog (default: from the search_path)"),
	}
}

func (c *inboxCommand) store() inbox.Store { return inbox.Store{Schema: *c.schema} }

func (a *app) inboxList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the events that wait or are parked",
		Long: `List prints the events in inbox_events in the order of their arrival: time of arrival, id, consumer,
type, topic, key, state, number of failed attempts and last error. The state is parked, due with a
time, behind (an earlier event of its key), or trying. Payloads are not printed.`,
		Example: `  outbox-cdc inbox list --dsn postgres://notifications@db/notifications
  outbox-cdc inbox list --dsn postgres://notifications@db/notifications --consumer notifications --parked --json`,
		Args: command.NoArgs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "list only events of this `consumer`")
	parked := cmd.Flags().Bool("parked", false, "list only parked events")
	limit := cmd.Flags().Int("limit", listLimit, "list at most this many events, the oldest first (0: all)")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 0 {
			return command.Usage(cmd, errors.New("--limit must not be negative"))
		}
		most := cmp.Or(*limit, math.MaxInt32-1)
		return c.connected(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			list := c.store().List
			if *parked {
				list = c.store().ListParked
			}
			events, err := list(ctx, conn, *c.consumer, most+1)
			switch {
			case err == nil && len(events) == 0:
				fmt.Fprintln(c.stderr, "no events")
			case len(events) > most:
				events = events[:most]
				defer fmt.Fprintf(c.stderr, "there are more than these %d events; list all with --limit 0\n", most)
			}
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
		Short: "Retry parked events",
		Long: `Retry makes parked events due again, with their attempts counted from 1. A running processor of the
consumer handles them, and then the events that wait behind them. If one of the ids is not parked,
retry changes nothing and exits with 2.`,
		Example: `  outbox-cdc inbox retry 0199a3c1-7a00-7000-8000-000000000001 --dsn postgres://notifications@db/notifications --consumer notifications
  outbox-cdc inbox retry --dsn postgres://notifications@db/notifications --consumer notifications --all`,
		Args: eventIDs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "name of the `consumer` (required)")
	all := cmd.Flags().Bool("all", false, "retry all parked events of the consumer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return command.Usage(cmd, errors.New("give the ids of events, or --all"))
		}
		return c.change(cmd, "events to retry", func(ctx context.Context, conn *pgx.Conn) (int, error) {
			if *all {
				return c.store().RetryAll(ctx, conn, *c.consumer)
			}
			return len(args), c.store().Retry(ctx, conn, *c.consumer, parsed(args)...)
		})
	}
	return cmd
}

func (a *app) inboxDiscard() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard id...",
		Short: "Discard events for good",
		Long: `Discard removes events that wait or are parked, and claims them, so that they are never processed.
The events behind them follow. You cannot undo it. If one of the ids neither waits nor is parked,
discard changes nothing and exits with 2.`,
		Example: `  outbox-cdc inbox discard 0199a3c1-7a00-7000-8000-000000000001 --dsn postgres://notifications@db/notifications --consumer notifications`,
		Args:    eventIDs,
	}
	c := a.inboxCommand(cmd)
	c.consumer = cmd.Flags().String("consumer", "", "name of the `consumer` (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return command.Usage(cmd, errors.New("give the ids of events, as inbox list prints them"))
		}
		return c.change(cmd, "events discarded", func(ctx context.Context, conn *pgx.Conn) (int, error) {
			return len(args), c.store().Discard(ctx, conn, *c.consumer, parsed(args)...)
		})
	}
	return cmd
}

func (a *app) inboxPrune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete old claims",
		Long: `Prune deletes claims older than --older-than from processed_events, in batches. In a partitioned table
it drops old partitions and creates those of the next 14 days. If an event is delivered again after its
claim was deleted, its effects happen again. So --older-than must exceed the retention of the topics,
plus the lag of the relay and the consumer.`,
		Example: `  outbox-cdc inbox prune --dsn postgres://owner@db/notifications --older-than 720h`,
		Args:    command.NoArgs,
	}
	c := a.inboxCommand(cmd)
	age := cmd.Flags().Duration("older-than", 0, "delete claims older than this `duration`, at least 1h (required)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *age < inbox.MinPruneAge {
			return command.Usage(cmd, errors.New("--older-than must be at least 1h, and longer than the retention of the topics"))
		}
		return c.connected(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			done, err := c.store().Prune(ctx, conn, *age)
			if err == nil || done.Rows > 0 {
				fmt.Fprintf(c.stdout, "claims deleted: %d\n", done.Rows)
			}
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
			return fmt.Errorf("%q is not the id of an event", arg)
		}
	}
	return nil
}

// parsed returns ids that eventIDs has checked.
func parsed(args []string) []uuid.UUID {
	ids := make([]uuid.UUID, len(args))
	for i, arg := range args {
		ids[i] = uuid.MustParse(arg)
	}
	return ids
}

// change changes events and prints how many.
func (c *inboxCommand) change(cmd *cobra.Command, what string, do func(context.Context, *pgx.Conn) (int, error)) error {
	if *c.consumer == "" {
		return command.Usage(cmd, errors.New("--consumer is required"))
	}
	return c.connected(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
		n, err := do(ctx, conn)
		if err == nil {
			fmt.Fprintf(c.stdout, "%s: %d\n", what, n)
		}
		return err
	})
}

// visit calls do, unless row-level security would hide rows of the tables from it.
func (c *inboxCommand) visit(ctx context.Context, conn *pgx.Conn, do func(context.Context, *pgx.Conn) error) error {
	names := []string{"inbox_events", "processed_events"}
	if *c.schema != "" {
		for i := range names {
			names[i] = replication.QuoteIdent(*c.schema) + "." + names[i]
		}
	}
	if err := catalog.VerifyNamedRows(ctx, conn.PgConn(), names...); err != nil {
		return err
	}
	return do(ctx, conn)
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
		err = errors.Join(c.visit(ctx, conn, do), conn.Close(ctx))
	}
	if err == nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{"source: " + command.Address(&pg.Config)}
	if errors.Is(err, inbox.ErrNoTable) || errors.Is(err, inbox.ErrOldTable) {
		f.Exit = exit.Usage
		f.Next = "outbox-cdc migrate up --only inbox"
	}
	if errors.Is(err, inbox.ErrNotFound) {
		f.Exit, f.Next = exit.Usage, "check the id and the consumer with outbox-cdc inbox list"
	}
	return f
}

// An inboxEvent is a line of `inbox list --json`.
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
		line += fmt.Sprintf("  failed attempts: %d, last error: %s", attempts, oneLine(first))
	}
	_, err := fmt.Fprintln(c.stdout, line)
	return err
}

// state returns the state of an event, as inbox list prints it.
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
