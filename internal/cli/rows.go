package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// loadBothSides loads the configuration of a command that reads rows from the tables and connects to the
// broker. The error names a missing key of either side.
func (a *app) loadBothSides(settings *command.Settings) (*config.Config, relay.Config, error) {
	cfg, err := settings.Load(a.environ)
	if err != nil {
		return nil, relay.Config{}, err
	}
	sending, err := cfg.Sending()
	if err == nil && sending.Source.Conn == nil {
		_, err = cfg.Postgres() // its error names the missing key
	}
	return cfg, sending, err
}

// bothSides names the servers of sending, for an error.
func bothSides(sending *relay.Config) []string {
	return []string{"source: " + command.Address(sending.Source.Conn), "sink: " + sending.Sink.String()}
}

// rowSelection selects all rows, by id, in the order of insertion: that of column orderBy, if it is not empty.
func rowSelection(cfg *config.Config, orderBy string) catalog.Selection {
	sel := catalog.Selection{ID: cfg.Outbox.Columns.ID}
	sel.Time = append(slices.Clone(cfg.Outbox.Columns.Timestamp), "created_at")
	sel.Order = append([]string{"position"}, sel.Time...)
	if orderBy != "" {
		sel.Order = []string{orderBy}
	}
	return sel
}

// topicCounts is the number of records per topic.
type topicCounts map[string]int

func (c topicCounts) add(rec *sink.Record) { c[rec.Topic]++ }

// print prints how many records a command would send.
func (c topicCounts) print(w io.Writer) {
	for _, topic := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(w, "%s would be sent to %s\n", terminal.Counted(c[topic], "record"), topic)
	}
}
