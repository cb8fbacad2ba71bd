package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/tail"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Where a tail starts.
const (
	fromNow  = "now"
	fromSlot = "slot"
)

func (a *app) tail() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the records that the relay would send, without sending them",
		Long: `Tail prints the record of each committed row as run would send it: topic, key, headers and value, and
the partition if a column sets it. It sends nothing and does not need the broker. It uses a temporary
replication slot of its own, outbox_cdc_tail_…, so no other slot advances, and it can run beside a relay.

By default tail starts with the next commit and runs until Ctrl-C. With --from slot it starts at the
position of the relay's slot and shows what the relay sends next, for instance the row that stopped it.
Use --until-end to stop after the last row that is already committed, --limit to stop after a number of
rows, and --for to stop after a time.

If a row cannot be sent, tail prints the reason and what run would do. Tail does not know what the broker
rejects, such as a record that is too large.

Tail prints payloads. Text is printed as it is, with control characters escaped; other bytes are printed
in hexadecimal. Long values are cut; --json prints them whole. The role needs REPLICATION.`,
		Example: `  outbox-cdc tail -c outbox-cdc.yaml
  outbox-cdc tail -c outbox-cdc.yaml --from slot --until-end
  outbox-cdc tail -c outbox-cdc.yaml --from slot --limit 1
  outbox-cdc tail -c outbox-cdc.yaml --json --for 1m | jq -r .value`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot")
	from := cmd.Flags().String("from", fromNow, "where to start: now, or slot for the position of the relay's slot")
	untilEnd := cmd.Flags().Bool("until-end", false, "with --from slot: stop after the rows that are already committed")
	limit := cmd.Flags().Int("limit", 0, "stop after this many rows (0: no limit)")
	duration := cmd.Flags().Duration("for", 0, "stop after this time, such as 30s (0: no limit)")
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object per line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *from != fromNow && *from != fromSlot:
			return command.Usage(cmd, fmt.Errorf("--from must be %s or %s", fromNow, fromSlot))
		case *limit < 0:
			return command.Usage(cmd, errors.New("--limit must not be negative"))
		case *duration < 0:
			return command.Usage(cmd, errors.New("--for must not be negative"))
		case *untilEnd && *from != fromSlot:
			return command.Usage(cmd, errors.New("--until-end needs --from slot"))
		}
		return a.follow(cmd.Context(), s, tailRange{*from, *untilEnd, *duration}, &tailPrinter{app: a, json: *asJSON, limit: *limit})
	}
	return cmd
}

// A tailRange is where a tail starts and stops.
type tailRange struct {
	from     string
	untilEnd bool
	duration time.Duration // 0: no limit
}

// follow prints the records that would be sent, until ctx ends or p has enough.
func (a *app) follow(ctx context.Context, s *command.Settings, which tailRange, p *tailPrinter) error {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return command.Failed(err)
	}
	rows, err := cfg.Tail()
	if err != nil {
		return command.Failed(err)
	}
	slot, from := "", "now on"
	if which.from == fromSlot {
		slot = rows.Source.Slot
		from = "the position of slot " + slot
	}
	where := fmt.Sprintf("source: %s, publication %s", command.Address(rows.Source.Conn), rows.Source.Publication)
	reader, err := tail.Open(ctx, rows, slot, command.NewLogger(cfg, a.stderr))
	if err == nil {
		fmt.Fprintf(a.stderr, "%s, from %s. Nothing is sent, and no slot advances. Press Ctrl-C to stop.\n", where, from)
		if which.untilEnd {
			reader.UntilEnd()
		}
		if which.duration > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, which.duration)
			defer cancel()
		}
		err = reader.Run(ctx, p.print)
		if err == nil && which.untilEnd && p.printed == 0 {
			fmt.Fprintln(a.stderr, "no rows: the slot is at the end of the WAL. If an initial copy or a refill is not finished (see status), its rows come from the table")
		}
	}
	if err == nil || errors.Is(err, errEnough) || ctx.Err() != nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{where}
	if slot != "" {
		f.Object = "slot " + slot
	}
	return f
}

// errEnough: --limit rows were printed.
var errEnough = errors.New("enough")

// A tailPrinter prints the records of rows.
type tailPrinter struct {
	*app
	json    bool
	limit   int // 0: none
	printed int
}

// A tailObject is a row as JSON. Topic and the fields after it are empty if the row cannot be sent.
type tailObject struct {
	Transaction string `json:"transaction"` // commit LSN
	Row         *int   `json:"row"`         // index in its transaction; null: a change that is not an event
	ID          string `json:"id"`          // of the event; empty: unknown
	Reason      string `json:"reason,omitempty"`
	ExitCode    int    `json:"exit_code,omitempty"` // with which run would stop here

	Topic     string        `json:"topic,omitempty"`
	Partition *int32        `json:"partition"` // null: the key selects it
	Timestamp *time.Time    `json:"timestamp,omitempty"`
	Key       jsonText      `json:"key"`
	Headers   []headerEntry `json:"headers"`
	Value     jsonText      `json:"value"`
}

// print prints one row.
func (p *tailPrinter) print(t *tail.Row) error {
	if err := p.write(t); err != nil {
		return err
	}
	if p.printed++; p.printed == p.limit {
		return errEnough
	}
	return nil
}

func (p *tailPrinter) write(t *tail.Row) error {
	if p.json {
		return printJSON(p.stdout, object(t))
	}
	place := "transaction " + t.CommitLSN.String()
	if t.Index >= 0 {
		place += fmt.Sprintf(", row %d", t.Index)
	}
	switch {
	case t.Record == nil:
		_, err := fmt.Fprintf(p.stdout, "%s\n  error   %s\n          run would stop here with exit code %d (%s)\n", place, t.Reason, t.ExitCode, fault.Meaning(t.ExitCode))
		return err
	case t.Reason != "":
		place += ", dead letter: " + t.Reason
	}
	if _, err := fmt.Fprintf(p.stdout, "%s, timestamp %s\n", place, at(t.Record.Timestamp)); err != nil {
		return err
	}
	writeRecord(p.stdout, t.Record, shownValue)
	return nil
}

func object(t *tail.Row) *tailObject {
	o := &tailObject{Transaction: t.CommitLSN.String(), ID: t.ID, Reason: t.Reason, ExitCode: t.ExitCode}
	if t.Index >= 0 {
		o.Row = &t.Index
	}
	if r := t.Record; r != nil {
		o.Topic, o.Key, o.Value, o.Headers = r.Topic, r.Key, r.Value, entries(r.Headers)
		o.Timestamp = new(r.Timestamp.UTC())
		if r.Partition != sink.AnyPartition {
			o.Partition = &r.Partition
		}
	}
	return o
}
