package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/connector"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func (a *app) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether a slot can be taken over from Debezium",
		Long: `Check looks at the source and says, one condition per line, whether the slot that a Debezium
connector has left can be taken over: ok, warning, or fails with what mends it. It writes nothing.
The exit code is 0 if no condition fails, else 1.

With the offsets that Kafka Connect has stored for the connector it also says where to start, so
that as little as possible is sent again.`,
		Example: `  outbox-cdc check --takeover -c outbox-cdc.yaml
  curl -s connect:8083/connectors/orders-outbox/offsets > offsets.json
  outbox-cdc check --takeover -c outbox-cdc.yaml --offsets offsets.json`,
		Args: noArgs,
	}
	s := configFlags(cmd, "dsn", "publication", "slot")
	takeover := cmd.Flags().Bool("takeover", false, "check what taking over a slot needs")
	offsets := cmd.Flags().String("offsets", "", "stored offsets: a `file` with the answer to GET /connectors/<name>/offsets, or the worker's own")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*takeover {
			return usage(cmd, errors.New("say what to check: --takeover"))
		}
		cfg, err := a.load(s)
		if err != nil {
			return failed(err)
		}
		conditions, err := a.takeover(cmd.Context(), cfg, s.file, *offsets)
		if err != nil {
			return err
		}
		return a.printConditions(conditions, *asJSON)
	}
	return cmd
}

// takeover looks at everything that a take-over depends on.
func (a *app) takeover(ctx context.Context, cfg *config.Config, file, offsets string) ([]debezium.Condition, error) {
	setup, err := cfg.Setup()
	if err != nil {
		return nil, failed(err)
	}
	t := debezium.Takeover{Config: file}
	if offsets != "" {
		if t.Offset, err = readOffset(offsets, cfg.Debezium.Name, ""); err != nil {
			return nil, mistake(err)
		}
	}
	elsewhere := func(err error) error {
		f := failed(err)
		f.where = []string{"source: " + address(setup.Conn)}
		return f
	}
	if t.Catalog, err = replication.Inspect(ctx, setup.Conn, setup.Publication, setup.Slot); err != nil {
		return nil, elsewhere(err)
	}
	if t.Catalog.Publication != nil && len(setup.Tables) > 0 {
		t.Covers = replication.Covers(ctx, setup.Conn, setup.Publication, setup.Tables)
		if t.Covers != nil && !errors.Is(t.Covers, replication.ErrPublication) && !errors.Is(t.Covers, replication.ErrConfig) {
			return nil, elsewhere(t.Covers)
		}
	}
	return debezium.CheckTakeover(t), nil
}

// printConditions writes one line per condition, and below it what mends it.
func (a *app) printConditions(conditions []debezium.Condition, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(conditions); err != nil {
			return err
		}
	} else {
		width := 0
		for _, c := range conditions {
			width = max(width, len(c.Name))
		}
		for _, c := range conditions {
			fmt.Fprintf(a.stdout, "%-7s  %-*s  %s\n", c.State, width, c.Name, c.Found)
			if c.Fix != "" {
				fmt.Fprintf(a.stdout, "%s→ %s\n", strings.Repeat(" ", len("warning")+2+width+2), c.Fix)
			}
		}
	}
	if err := debezium.Ready(conditions); err != nil {
		return &failure{err: err, exit: connector.ExitUnexpected, what: "not ready", next: "what mends each of them is said above; then check again"}
	}
	return nil
}
