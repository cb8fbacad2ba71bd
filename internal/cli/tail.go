package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Where a tail begins.
const (
	fromNow  = "now"
	fromSlot = "slot"
)

func (a *app) tail() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print what would be produced, without producing",
		Long: `Tail prints the records that rows become as they are committed: topic, partition where a column
says it, key, headers and value, made as run makes them. It sends nothing and needs no Kafka. It reads
a temporary slot of its own, outbox_cdc_tail_…, which Postgres drops when it ends: no other slot is
moved, and a relay may run beside it.

It begins now, or with --from slot where the relay's slot stands: then it shows what is next to be
delivered, such as the row that has ended a relay. A row that cannot be sent is shown with its reason,
and with what run would do. What only Kafka can refuse, such as a record that is too large, is not known here.

Rows are printed whole, with their payloads: mind where you print them. Text is printed as it is, with
control characters as Go writes them, anything else in hexadecimal, and of a long value the beginning;
with --json all of it. It ends after --limit rows, or with Ctrl-C. The role needs REPLICATION.`,
		Example: `  outbox-cdc tail -c outbox-cdc.yaml
  outbox-cdc tail -c outbox-cdc.yaml --from slot --limit 1
  outbox-cdc tail -c outbox-cdc.yaml --json | jq -r .value`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot")
	from := cmd.Flags().String("from", fromNow, "where to begin: now, or slot, where the relay's stands")
	limit := cmd.Flags().Int("limit", 0, "end after so many rows; 0: never")
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *from != fromNow && *from != fromSlot:
			return command.Usage(cmd, fmt.Errorf("--from must be %s or %s", fromNow, fromSlot))
		case *limit < 0:
			return command.Usage(cmd, errors.New("--limit cannot be negative"))
		}
		return a.follow(cmd, s, *from, &tailPrinter{app: a, json: *asJSON, limit: *limit})
	}
	return cmd
}

// follow prints what would be produced.
func (a *app) follow(cmd *cobra.Command, s *command.Settings, from string, p *tailPrinter) error {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return command.Failed(err)
	}
	rows, err := cfg.Tail()
	if err != nil {
		return command.Failed(err)
	}
	slot, begins := "", "now"
	if from == fromSlot {
		slot = rows.Source.Slot
		begins = "where slot " + slot + " stands"
	}
	where := fmt.Sprintf("source: %s, publication %s", command.Address(rows.Source.Conn), rows.Source.Publication)
	tail, err := relay.OpenTail(cmd.Context(), rows, slot, command.NewLogger(cfg.Log, a.stderr))
	if err == nil {
		fmt.Fprintf(a.stderr, "%s, from %s; nothing is produced and no slot is moved; Ctrl-C ends\n", where, begins)
		err = tail.Run(cmd.Context(), p.print)
	}
	if err == nil || errors.Is(err, errEnough) || cmd.Context().Err() != nil {
		return nil //nolint:nilerr // what happens while it is ended is of no interest
	}
	f := command.Failed(err)
	f.Where = []string{where}
	if slot != "" {
		f.Object = "slot " + slot
	}
	return f
}

// errEnough: as many rows were printed as were asked for.
var errEnough = errors.New("enough")

// A tailPrinter prints what would become of rows.
type tailPrinter struct {
	*app
	json    bool
	limit   int // 0: none
	printed int
}

// A tailObject is a row as JSON. Of a row that would not be sent there is neither topic nor what follows it.
type tailObject struct {
	Transaction string `json:"transaction"` // where it was committed
	Row         *int   `json:"row"`         // in its transaction, from 0; null: a change that is no event
	Reason      string `json:"reason,omitempty"`
	ExitCode    int    `json:"exit_code,omitempty"` // with which run would end here

	Topic     string        `json:"topic,omitempty"`
	Partition *int32        `json:"partition"` // null: the key decides
	Timestamp *time.Time    `json:"timestamp,omitempty"`
	Key       jsonText      `json:"key"`
	Headers   []headerEntry `json:"headers"`
	Value     jsonText      `json:"value"`
}

// print prints one row.
func (p *tailPrinter) print(t *relay.Tailed) error {
	if err := p.write(t); err != nil {
		return err
	}
	if p.printed++; p.printed == p.limit {
		return errEnough
	}
	return nil
}

func (p *tailPrinter) write(t *relay.Tailed) error {
	if p.json {
		return printJSON(p.stdout, object(t))
	}
	place := "transaction " + t.CommitLSN.String()
	if t.Index >= 0 {
		place += fmt.Sprintf(", row %d", t.Index)
	}
	switch {
	case t.Record == nil:
		_, err := fmt.Fprintf(p.stdout, "%s\n  refused %s\n          run would end here with exit code %d (%s)\n", place, t.Reason, t.ExitCode, command.Meaning(t.ExitCode))
		return err
	case t.Reason != "":
		place += ", put aside because of: " + t.Reason
	}
	if _, err := fmt.Fprintf(p.stdout, "%s, timestamp %s\n", place, at(t.Record.Timestamp)); err != nil {
		return err
	}
	writeRecord(p.stdout, t.Record, shownValue)
	return nil
}

func object(t *relay.Tailed) *tailObject {
	o := &tailObject{Transaction: t.CommitLSN.String(), Reason: t.Reason, ExitCode: t.ExitCode}
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
