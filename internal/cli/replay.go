package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/replay"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// askAbove is how many rows are sent without asking whoever sits at the terminal.
const askAbove = 10_000

// A replaying is one run of replay.
type replaying struct {
	*app
	settings    *command.Settings
	since       *time.Time
	where, ids  string
	after       string
	table       string
	orderBy     string
	undelivered bool
	limit, rate int
	dryRun, yes bool
	stdin       io.Reader

	sending relay.Config
	log     *slog.Logger
}

func (a *app) replay() *cobra.Command {
	r := &replaying{app: a}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send rows that are still in the table again",
		Long: `Replay sends rows of the outbox table again, as the relay does: same topic, key, partition, value
and headers, and the header replayed: true. They go in the order in which they were inserted, so those
of a key keep theirs; a relay that runs beside it is not touched, nor are slot and recorded position,
and what it sends meanwhile mixes with them.

Which rows is said by --undelivered, --where, --since, --ids, or several of them, all of which must hold.
With --undelivered they are the rows of all transactions that the relay's position record does not show as
delivered. The relay must not be running: use it after a gap, before you start the relay again. The text of
--where is SQL that becomes part of a query as it is, in a read-only transaction and with the rights of
source.dsn: do not put text into it that somebody else has written. The role needs SELECT on the table,
which a relay's does not have: give the owner's --dsn.

The timestamp of a record is that of outbox.columns.timestamp, or else created_at, if the table has it:
the time of the commit is in the log only, and so is what headers.position adds.`,
		Example: `  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OWNER_DSN" --undelivered
  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OWNER_DSN" --since 2h --dry-run
  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OWNER_DSN" --where "aggregateid = 'order-7'"
  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OWNER_DSN" --ids @ids.txt --rate 500`,
		Args: command.NoArgs,
	}
	r.settings = command.ConfigFlags(cmd, "dsn", "brokers")
	flags := cmd.Flags()
	flags.StringVar(&r.where, "where", "", "rows for which this `SQL` condition holds; true: all")
	r.since = timeFlag(cmd, "since", "rows of this `time` or later: 2026-01-31T14:00:00Z, or 2h for two hours ago")
	flags.StringVar(&r.ids, "ids", "", "rows with these `ids`: separated by commas, or @file, or - for standard input, one a line")
	flags.BoolVar(&r.undelivered, "undelivered", false, "rows that the position record does not show as delivered")
	flags.StringVar(&r.table, "table", "", "`name` of the table, where outbox.tables has several")
	flags.StringVar(&r.orderBy, "order-by", "", "`column` with the order of insertion; by default position, or else the one with the time")
	flags.StringVar(&r.after, "after", "", "go on after the row with this `id`, which an earlier replay has named as the last one")
	flags.IntVar(&r.limit, "limit", 0, "send so many rows at most, the first of them; 0: all")
	flags.IntVar(&r.rate, "rate", 0, "send so many rows a second at most; 0: as fast as it goes")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print how many records would go to which topic, and send nothing")
	flags.BoolVar(&r.yes, "yes", false, "do not ask, however many rows there are")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.where == "" && r.since.IsZero() && r.ids == "" && !r.undelivered {
			return command.Usage(cmd, errors.New("say which rows: --undelivered, --where, --since or --ids; --where true is all"))
		}
		r.stdin = cmd.InOrStdin()
		return r.run(cmd.Context())
	}
	return cmd
}

func (r *replaying) run(ctx context.Context) error {
	cfg, err := r.settings.Load(r.environ)
	if err != nil {
		return command.Failed(err)
	}
	if r.sending, err = cfg.Sending(); err != nil {
		return command.Failed(err)
	}
	if r.sending.Source.Conn == nil {
		_, err := cfg.Postgres() // says what is missing
		return command.Failed(err)
	}
	selection, err := r.selection(cfg)
	if err != nil {
		return mistake(err)
	}
	r.log = command.NewLogger(cfg.Log, r.stderr)
	if r.undelivered {
		if selection.Undelivered, err = r.delivered(ctx); err != nil {
			return r.failed(ctx, err)
		}
	}
	rows, err := replay.Open(ctx, r.sending, selection, r.log)
	if err != nil {
		return r.failed(ctx, err)
	}
	defer rows.Close(ctx)
	switch {
	case rows.Rows.Count == 0:
		return &command.ExitError{
			Err: errors.New("no row is selected"), Exit: relay.ExitUsage, Object: "table " + selection.Table,
			Next: "look with the same condition in the table; rows that were deleted cannot be sent again",
		}
	case r.dryRun:
		return r.preview(ctx, rows)
	case !r.agreed(rows.Rows.Count, selection.Table):
		return &command.ExitError{Err: errors.New("nothing was sent"), Exit: relay.ExitUsage, Next: "--dry-run shows what would be sent, --yes does not ask"}
	}
	return r.send(ctx, rows)
}

// delivered reads from the position record what the relay has delivered.
func (r *replaying) delivered(ctx context.Context) (*catalog.Delivered, error) {
	p, err := relay.Recorded(ctx, r.sending, r.log)
	switch {
	case err != nil:
		return nil, err
	case p == nil || len(p.Snapshots) == 0:
		return nil, fmt.Errorf("%w: relay %q has no position record with a snapshot in topic %q; choose rows by time or by their ids",
			catalog.ErrSelection, r.sending.Name, r.sending.PositionTopic)
	}
	return &catalog.Delivered{SystemID: p.SystemID, Timeline: p.Timeline, Slot: p.Slot, Snapshot: p.Snapshots[0].Text}, nil
}

// selection is what the flags select.
func (r *replaying) selection(cfg *config.Config) (catalog.Selection, error) {
	sel := catalog.Selection{
		Table: r.table, ID: cfg.Outbox.Columns.ID, Where: r.where, Since: *r.since, After: r.after, Limit: r.limit,
	}
	switch {
	case sel.Table != "":
	case len(r.sending.Tables) == 1:
		sel.Table = r.sending.Tables[0]
	case len(r.sending.Tables) == 0:
		return sel, errors.New("outbox.messages has no table that rows could still be in")
	default:
		return sel, fmt.Errorf("say which table: --table; there are %s", strings.Join(r.sending.Tables, ", "))
	}
	if r.limit < 0 || r.rate < 0 {
		return sel, errors.New("--limit and --rate are not negative")
	}
	for _, column := range []string{cfg.Outbox.Columns.Timestamp, "created_at"} {
		if column != "" {
			sel.Time = append(sel.Time, column)
		}
	}
	sel.Order = append([]string{"position"}, sel.Time...)
	if r.orderBy != "" {
		sel.Order = []string{r.orderBy}
	}
	var err error
	sel.IDs, err = r.readIDs()
	return sel, err
}

// readIDs reads what --ids names.
func (r *replaying) readIDs() ([]string, error) {
	list := r.ids
	if file, isFile := strings.CutPrefix(list, "@"); isFile || list == "-" {
		data, err := readInput(file, r.stdin)
		if err != nil {
			return nil, err
		}
		list = string(data)
	}
	ids := strings.FieldsFunc(list, func(c rune) bool { return strings.ContainsRune(", \t\r\n", c) })
	if r.ids != "" && len(ids) == 0 {
		return nil, errors.New("--ids names no id")
	}
	return ids, nil
}

// agreed reports whether so many rows may be sent: whoever sits at the terminal is asked.
func (r *replaying) agreed(rows int64, table string) bool {
	if rows <= askAbove || r.yes || !command.IsTerminal(r.stdin) || !command.IsTerminal(r.stderr) {
		return true
	}
	fmt.Fprintf(r.stderr, "Send %d rows of %s to Kafka again? [y/N] ", rows, table)
	answer, _ := bufio.NewReader(r.stdin).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// preview prints how many records would go where.
func (r *replaying) preview(ctx context.Context, rows *replay.Replay) error {
	topics := make(map[string]int)
	err := rows.Preview(ctx, func(rec *sink.Record) { topics[strings.Clone(rec.Topic)]++ })
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		fmt.Fprintf(r.stdout, "%d would be sent to %s\n", topics[topic], topic)
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	return nil
}

// send sends the rows, and says how far that has come.
func (r *replaying) send(ctx context.Context, rows *replay.Replay) error {
	total := int(rows.Rows.Count)
	p := command.NewProgress(r.stderr, r.environ, r.log)
	p.Phase = "replay"
	began := time.Now()
	done, err := rows.Send(ctx, r.rate, func(sofar replay.Progress) { p.Show(ctx, "rows", sofar.Acked, total) })
	p.End()
	took := time.Since(began)
	fmt.Fprintf(r.stdout, "%d of %d rows sent again and acknowledged, in %.1f s\n", done.Acked, total, took.Seconds())
	if err == nil {
		return nil
	}
	f := r.failed(ctx, err)
	if done.Acked > 0 {
		f.Err = fmt.Errorf("%w; the last acknowledged row is %s", f.Err, strconv.Quote(done.LastID))
		f.Next += fmt.Sprintf("; to go on: the same command with --after %s", shellQuoted(done.LastID))
	}
	return f
}

// shellQuoted is a text as a shell takes it for one word.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(oneLine(s), "'", `'\''`) + "'" }

// failed is how a replay ends that does not come to its end.
func (r *replaying) failed(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	f.Where = []string{"source: " + command.Address(r.sending.Source.Conn), "sink: " + r.sending.Sink.String()}
	_, row := errors.AsType[*replay.RowError](err)
	_, table := errors.AsType[*encode.ColumnError](err)
	switch {
	case ctx.Err() != nil:
		f.Err, f.Exit, f.What, f.Advice = errors.New("stopped before all rows were sent"), relay.ExitUnexpected, "interrupted", ""
		f.Next = "what was sent is sent"
	case row:
		f.Advice, f.Next = "", "correct what the reason names, or leave the row out with --where"
	case table:
		f.Exit = relay.ExitUsage
	case errors.Is(err, catalog.ErrSelection), errors.Is(err, replication.ErrConfig), errors.Is(err, replication.ErrPublication):
		f.Exit, f.Advice, f.Next = relay.ExitUsage, "", "correct it and do it again; nothing was sent"
	case errors.Is(err, replication.ErrAccess):
		f.Next = "let the role read the table, or give the owner's --dsn"
	}
	return f
}
