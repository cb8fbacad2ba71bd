package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/audit"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An auditing is one run of audit.
type auditing struct {
	*app
	settings        *command.Settings
	since, until    *time.Time
	prunedBefore    *time.Time
	where, orderBy  string
	wait            time.Duration
	assumeConfirmed bool
	missing         int
	allowed         []string
	asJSON          bool

	cfg audit.Config
}

func (a *app) audit() *cobra.Command {
	r := &auditing{app: a}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare the table with the topics: missing, duplicate, out-of-order and altered records",
		Long: `Audit compares the rows of the outbox tables with the records of the topics. For each topic it reports:

  missing       rows without a record
  phantom       records without a row
  duplicate     further records of a row
  altered       records whose topic, key, headers or value are not what the row says
  out of order  records behind a later record of their key, or in another partition

The exit code is 0 if it finds none, and 1 otherwise. Audit writes nothing, and the relay may run: it leaves
out rows that the slot has not confirmed. With the configuration from import debezium it audits a running
Debezium in the same way. Audit counts separately what it cannot judge, such as a record whose row may have
been pruned.

The role needs SELECT on the tables, which a relay's role does not have: give the --dsn of an operator
(docs/roles.md). The user of the broker needs the right to read the topics (Kafka: Read and Describe).`,
		Example: `  outbox-cdc audit -c outbox-cdc.yaml --dsn "$OPERATOR_DSN"
  outbox-cdc audit -c outbox-cdc.yaml --dsn "$OPERATOR_DSN" --since 24h --allow duplicate --json`,
		Args: command.NoArgs,
	}
	r.settings = command.ConfigFlags(cmd, "dsn", command.Sink, "slot", "table")
	flags := cmd.Flags()
	r.since = timeFlag(cmd, "since", "rows of this `time` or later, none without a time: 2026-01-31T14:00:00Z, or 2h for two hours ago")
	r.until = timeFlag(cmd, "until", "rows of an earlier `time` than this")
	flags.StringVar(&r.where, "where", "", "rows for which this `SQL` condition holds, as for replay")
	flags.StringVar(&r.orderBy, "order-by", "", "`column` with the order of insertion; by default position, or else created_at")
	r.prunedBefore = timeFlag(cmd, "pruned-before", "`time` from which on no row was deleted; by default 5 minutes after the oldest row")
	flags.DurationVar(&r.wait, "wait", time.Minute, "how much `time` a running relay may take to confirm the rows")
	flags.BoolVar(&r.assumeConfirmed, "assume-confirmed", false, "every selected row must have a record, whatever the slot has confirmed")
	flags.StringSliceVar(&r.allowed, "allow", nil, "`kind` that is reported and does not fail the audit: missing, phantom, duplicate, altered, out-of-order (repeatable)")
	flags.IntVar(&r.missing, "missing", 10, "list at most this `number` of missing rows of each topic")
	flags.BoolVar(&r.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, kind := range r.allowed {
			if !slices.Contains(audit.Kinds(), audit.Kind(kind)) {
				return command.Usage(cmd, fmt.Errorf("--allow %s is not a kind: missing, phantom, duplicate, altered, out-of-order", kind))
			}
		}
		if r.missing < 0 {
			return command.Usage(cmd, errors.New("--missing must not be negative"))
		}
		if r.wait < 0 {
			return command.Usage(cmd, errors.New("--wait must not be negative"))
		}
		return r.run(cmd.Context())
	}
	return cmd
}

func (r *auditing) run(ctx context.Context) error {
	cfg, sending, err := r.loadBothSides(r.settings)
	if err != nil {
		return command.Failed(err)
	}
	if len(sending.Tables) == 0 {
		return mistake(errors.New("outbox.messages has no table to audit"))
	}
	r.cfg = audit.Config{
		Relay: sending, Slot: cfg.Source.Slot, Selection: r.selection(cfg), PrunedBefore: *r.prunedBefore,
		Wait: r.wait, AssumeConfirmed: r.assumeConfirmed, Missing: r.missing, DeadLettersOptional: !cfg.SendsDeadLetters(),
	}
	debug.SetGCPercent(auditGCPercent)
	log := command.NewLogger(cfg, r.stderr)
	p := command.NewProgress(r.stderr, r.environ, log)
	p.Phase = "audit"
	r.cfg.Progress = func(doing string, done, total int) { p.Show(ctx, doing, done, total) }
	report, err := audit.Run(ctx, r.cfg, log)
	p.End()
	if err != nil {
		return r.failed(ctx, err)
	}
	if report.Rows == 0 && (r.where != "" || !r.until.IsZero()) { // otherwise nobody may have written a row, or all may be pruned
		return &command.ExitError{
			Err: errors.New("no row is selected, so nothing was compared"), Exit: exit.Usage, Where: bothSides(&r.cfg.Relay),
			Next: "query the table with the same conditions",
		}
	}
	if err := r.print(report, catalog.Terms{Arguments: cfg.Arguments()}); err != nil {
		return err
	}
	return r.verdict(report)
}

// auditGCPercent is the GOGC of an audit. Nearly all of its heap is slices without pointers, which the garbage collector
// does not scan, so frequent collections cost no time. With GOGC=100, the garbage of reading would grow to the size
// of these slices: a million rows then take 155 MB instead of 95 MB, and the same 3.9 s of CPU.
const auditGCPercent = 5

// selection returns the selection of rows that the flags describe.
func (r *auditing) selection(cfg *config.Config) catalog.Selection {
	sel := rowSelection(cfg, r.orderBy)
	if r.orderBy == "" {
		sel.Order, sel.AnyOrder = []string{"position", "created_at"}, true // outbox.columns.timestamp may be any time
	}
	sel.Where, sel.Since, sel.Until = r.where, *r.since, *r.until
	return sel
}

// print writes the report to standard output. terms are those of the commands in it.
func (r *auditing) print(report *audit.Report, terms catalog.Terms) error {
	if r.asJSON {
		encoder := json.NewEncoder(r.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	printAudit(r.stdout, report, terms)
	return nil
}

// verdict returns an error if the topics differ from the tables in a kind that is not allowed.
func (r *auditing) verdict(report *audit.Report) error {
	var found []string
	for _, kind := range audit.Kinds() {
		if n := report.Count(kind); n > 0 && !slices.Contains(r.allowed, string(kind)) {
			found = append(found, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if n := report.Undecided(); n > 0 {
		found = append(found, fmt.Sprintf("%s without a record, and it is not known whether one must exist that can be read", terminal.Counted(n, "row")))
	}
	if len(found) == 0 {
		return nil
	}
	return &command.ExitError{
		Err: errors.New("the topics differ from the tables: " + strings.Join(found, ", ")), Exit: exit.Unexpected,
		Where: bothSides(&r.cfg.Relay), What: "audit failed", Next: "look up each kind in docs/audit.md#what-to-do",
	}
}

// printAudit writes a report as a table and lines. terms are those of the commands in it.
func printAudit(w io.Writer, report *audit.Report, terms catalog.Terms) {
	fmt.Fprintf(w, "%s of %s; confirmed by: %s, at %s\n\n", terminal.Counted(report.Rows, "row"), strings.Join(report.Tables, ", "), report.Confirmed, report.Position)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rows\trecords\tmissing\tphantom\tduplicate\taltered\tout of order\t  topic")
	for _, t := range report.Topics {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", t.Rows, t.Records, t.Missing, t.Phantom, t.Duplicate, t.Altered, t.OutOfOrder, t.Name)
	}
	_ = table.Flush() // fails only if standard output is closed
	for _, t := range report.Topics {
		for _, other := range []struct {
			n          int
			noun, rest string
		}{
			{t.Unconfirmed, "row", " without a record, not confirmed yet"},
			{t.Hidden, "row", " without a record, which an open transaction may hide"},
			{t.Expired, "row", " without a record, which retention or compaction may have deleted"},
			{t.NoRow, "record", " without a row, which may have been pruned or not selected"},
			{t.DeadLetters - t.Unsent, "row", " in the dead-letter topic, released or resent"},
			{t.Unsent, "row", " in the dead-letter topic, not sent: parked, not resent, or discarded; to see them: " + terms.Fill("outbox-cdc dead-letter list --resent")},
			{t.Resent, "resent record", ""},
			{t.Concurrent, "key", " whose transactions committed in another order than they inserted"},
		} {
			if other.n > 0 {
				fmt.Fprintf(w, "\nnot judged, %s: %s%s", t.Name, terminal.Counted(other.n, other.noun), other.rest)
			}
		}
	}
	shown := map[audit.Kind]int{}
	for _, f := range report.Findings {
		shown[f.Kind]++
		fmt.Fprintf(w, "\n%s: %s", f.Kind, f.Topic)
		if f.Partition != nil {
			fmt.Fprintf(w, "[%d]@%d", *f.Partition, *f.Offset)
		}
		if f.ID != "" {
			fmt.Fprintf(w, " id %s", oneLine(f.ID))
		}
		fmt.Fprintf(w, ": %s", f.Detail)
	}
	for _, kind := range audit.Kinds() {
		if more := report.Count(kind) - shown[kind]; more > 0 {
			fmt.Fprintf(w, "\n%s: %d more are not listed", kind, more)
			if kind == audit.Missing {
				fmt.Fprint(w, "; --missing lists more")
			}
		}
	}
	for _, note := range report.Notes {
		fmt.Fprintf(w, "\nnote: %s", note)
	}
	fmt.Fprintf(w, "\n%.1f s\n", report.Took)
}

// failed returns the error of an audit that could not finish.
func (r *auditing) failed(ctx context.Context, err error) *command.ExitError {
	f := command.Failed(err)
	_, table := errors.AsType[*encode.ColumnError](err)
	switch {
	case ctx.Err() != nil:
		f.Interrupt("all rows and records were read", "run the audit again")
	case errors.Is(err, errors.ErrUnsupported):
		f.Exit, f.Advice, f.Next = exit.Usage, "", "audit needs a broker that can be read back (docs/sinks.md)"
	case replication.FromPooler(err): // nothing of the audit's own
	case table, errors.Is(err, catalog.ErrSelection), errors.Is(err, replication.ErrConfig), errors.Is(err, replication.ErrPublication):
		f.Exit, f.Advice, f.Next = exit.Usage, "", "fix the selection or the configuration, and run the audit again"
	}
	f.Where = bothSides(&r.cfg.Relay)
	return f
}
