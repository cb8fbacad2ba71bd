package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/replay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// askAbove is the number of rows above which replay asks for confirmation on a terminal.
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
		Short: "Resend rows that are still in the table",
		Long: `Replay sends rows of the outbox table as the relay does, with the same topic, key, partition, value and
headers, and the additional header replayed: true. It sends them in insertion order, so rows of a key stay in
order. It does not change the slot or the position record. You can run it beside a relay; their records
then interleave.

Select rows with --where, --since or --ids; with several of them, all must match. For the rows that a relay
has missed, use outbox-cdc recover.

The text of --where becomes part of an SQL query, in a read-only transaction with the rights of
source.dsn. Do not pass text from somebody else. The role needs SELECT on the table, which the relay's
role does not have: give the --dsn of an operator (docs/roles.md).

The timestamp of a record is the value of outbox.columns.timestamp, or of created_at if the table has that
column, otherwise the current time. The commit time, and the header lsn, exist only in the WAL.`,
		Example: `  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --since 2h --dry-run
  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --where "aggregateid = 'order-7'"
  outbox-cdc replay -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --ids @ids.txt --rate 500`,
		Args: command.NoArgs,
	}
	r.settings = command.ConfigFlags(cmd, "dsn", command.Sink)
	flags := cmd.Flags()
	flags.StringVar(&r.where, "where", "", "rows that match this `SQL` condition; true selects all")
	r.since = timeFlag(cmd, "since", "rows from this `time` on, none without a time: 2026-01-31T14:00:00Z, or 2h for two hours ago")
	flags.StringVar(&r.ids, "ids", "", "rows with these `ids`: separated by commas, or from @file or standard input (-), one per line")
	flags.StringVar(&r.table, "table", "", "`name` of the table, if outbox.tables has several; --ids find it without")
	flags.StringVar(&r.orderBy, "order-by", "", "`column` with the insertion order (default: position, otherwise the timestamp column)")
	flags.StringVar(&r.after, "after", "", "continue after the row with this `id`, which an interrupted replay printed")
	flags.IntVar(&r.limit, "limit", 0, "send at most this many rows, the first ones (0: all)")
	flags.IntVar(&r.rate, "rate", 0, "send at most this many rows per second (0: no limit)")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print the number of records per topic, without sending them")
	flags.BoolVar(&r.yes, "yes", false, fmt.Sprintf("do not ask for confirmation. Without it, replay asks on a terminal if it would send more than %d rows", askAbove))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.where == "" && r.since.IsZero() && r.ids == "" {
			return command.Usage(cmd, errors.New("select rows with --where, --since or --ids; --where true selects all"))
		}
		r.stdin = cmd.InOrStdin()
		return r.run(cmd.Context())
	}
	return cmd
}

func (r *replaying) run(ctx context.Context) error {
	cfg, sending, err := r.loadBothSides(r.settings)
	if err != nil {
		return command.Failed(err)
	}
	r.sending = sending
	selection, err := r.selection(cfg)
	if err != nil {
		return mistake(err)
	}
	r.log = command.NewLogger(cfg, r.stderr)
	rows, err := r.open(ctx, selection)
	if err != nil {
		return r.failed(ctx, err)
	}
	defer rows.Close(ctx)
	selection.Table = cmp.Or(selection.Table, rows.Rows.Table.SQLName())
	switch {
	case rows.Rows.Count == 0:
		return &command.ExitError{
			Err: errors.New("no rows match"), Exit: exit.Usage, Object: "table " + selection.Table,
			Next: "check the condition against the table; deleted rows cannot be resent",
		}
	case r.dryRun:
		return r.preview(ctx, rows)
	case !r.agreed(rows.Rows.Count, selection.Table):
		return &command.ExitError{Err: errors.New("nothing was sent"), Exit: exit.Usage, Next: "see what would be sent with --dry-run, or confirm with --yes"}
	}
	return r.send(ctx, rows)
}

// open selects the rows in the table of sel, or if that has none, in the table that has the rows with the ids: no other
// one may have any of them.
func (r *replaying) open(ctx context.Context, sel catalog.Selection) (found *replay.Replay, err error) {
	if sel.Table != "" {
		return replay.Open(ctx, r.sending, sel, r.log)
	}
	const several = "If the ids are of several tables, replay the rows of each one with --table"
	var absent []error
	for _, sel.Table = range r.sending.Tables {
		rows, err := replay.Open(ctx, r.sending, sel, r.log)
		if _, lacks := errors.AsType[*catalog.AbsentError](err); lacks {
			absent = append(absent, err)
			continue
		}
		switch {
		case errors.Is(err, catalog.ErrSelection):
			err = fmt.Errorf("%w. %s", err, several)
		case err == nil && found != nil:
			rows.Close(ctx)
			err = fmt.Errorf("%w: tables %s and %s have rows with these ids: select one with --table", catalog.ErrSelection, found.Rows.Table.SQLName(), rows.Rows.Table.SQLName())
		}
		if err != nil {
			if found != nil {
				found.Close(ctx)
			}
			return nil, err
		}
		found = rows
	}
	if found == nil {
		return nil, fmt.Errorf("no table has these rows. %s:\n%w", several, errors.Join(absent...))
	}
	return found, nil
}

// selection returns the rows that the flags select. Its Table is empty if there are several tables, of which the ids choose one.
func (r *replaying) selection(cfg *config.Config) (catalog.Selection, error) {
	sel := rowSelection(cfg, r.orderBy)
	sel.Table, sel.Where, sel.Since, sel.After, sel.Limit = r.table, r.where, *r.since, r.after, r.limit
	switch {
	case sel.Table != "":
	case len(r.sending.Tables) == 1:
		sel.Table = r.sending.Tables[0]
	case len(r.sending.Tables) == 0:
		return sel, errors.New("with outbox.messages there is no table to read rows from")
	case r.ids == "":
		return sel, fmt.Errorf("select one table with --table: %s", strings.Join(r.sending.Tables, ", "))
	}
	if r.limit < 0 || r.rate < 0 {
		return sel, errors.New("--limit and --rate must not be negative")
	}
	var err error
	sel.IDs, err = r.readIDs()
	return sel, err
}

// readIDs returns the ids of --ids.
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
		return nil, errors.New("--ids has no id")
	}
	return ids, nil
}

// agreed reports whether to send this many rows. On a terminal it asks for confirmation.
func (r *replaying) agreed(rows int64, table string) bool {
	if rows <= askAbove || r.yes || !command.IsTerminal(r.stdin) || !command.IsTerminal(r.stderr) {
		return true
	}
	fmt.Fprintf(r.stderr, "Resend %s of %s to %s? [y/N] ", terminal.Counted(rows, "row"), table, r.sending.Sink)
	answer, _ := bufio.NewReader(r.stdin).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// preview prints the number of records per topic.
func (r *replaying) preview(ctx context.Context, rows *replay.Replay) error {
	counts := make(topicCounts)
	err := rows.Preview(ctx, counts.add)
	counts.print(r.stdout)
	if err != nil {
		return r.failed(ctx, err)
	}
	return nil
}

// send sends the rows and shows the progress.
func (r *replaying) send(ctx context.Context, rows *replay.Replay) error {
	total := int(rows.Rows.Count)
	p := command.NewProgress(r.stderr, r.environ, r.log)
	p.Phase = "replay"
	began := time.Now()
	done, err := rows.Send(ctx, r.rate, func(sofar replay.Progress) { p.Show(ctx, "rows", sofar.Acked, total) })
	p.End()
	took := time.Since(began)
	table := oneLine(rows.Rows.Table.Schema + "." + rows.Rows.Table.Name)
	fmt.Fprintf(r.stdout, "%d of %s of %s resent and acknowledged in %.1f s\n", done.Acked, terminal.Counted(total, "row"), table, took.Seconds())
	if err == nil {
		return nil
	}
	f := r.failed(ctx, err)
	if done.Acked > 0 {
		f.Err = fmt.Errorf("%w; the last acknowledged row is %s", f.Err, strconv.Quote(done.LastID))
		f.Next += fmt.Sprintf("; to continue, run the same command with --after %s", terminal.ShellQuote(oneLine(done.LastID)))
	}
	return f
}

// failed returns the error of an incomplete replay.
func (r *replaying) failed(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	f.Where = bothSides(&r.sending)
	_, row := errors.AsType[*replay.RowError](err)
	_, table := errors.AsType[*encode.ColumnError](err)
	switch {
	case ctx.Err() != nil:
		f.Interrupt("all rows were sent", "records that were sent stay in the broker")
	case row:
		f.Advice, f.Next = "", nextForRow(err)
	case table:
		f.Exit = exit.Usage
	case replication.FromPooler(err):
	case errors.Is(err, catalog.ErrSelection), errors.Is(err, replication.ErrConfig), errors.Is(err, replication.ErrPublication):
		f.Exit, f.Advice, f.Next = exit.Usage, "", "fix it and run the command again; nothing was sent"
	}
	return f
}

// nextForRow returns the next step after err, because of which a row cannot be sent.
func nextForRow(err error) string {
	if record, ok := errors.AsType[*sink.RecordError](err); ok && record.TooLarge {
		return fmt.Sprintf("let topic %s accept larger records, then run the command again (docs/bad-rows.md#fix-the-cause)", oneLine(record.Topic))
	}
	return "fix the row, or exclude it with --where"
}
