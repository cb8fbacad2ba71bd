package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
)

// previewRows is the number of rows of each table in the preview.
const previewRows = 3

// preview prints the records of the last rows of the outbox tables, with the imported configuration, to standard error.
func (i *importing) preview(ctx context.Context, result *debezium.Result, conn *pgx.ConnConfig) error {
	var environ []string
	for _, name := range result.Variables { // their values are not needed here, but they must be set
		environ = append(environ, name+"=1")
	}
	cfg, err := config.Load(config.Sources{File: "the configuration", Content: result.YAML, Environ: environ})
	if err != nil {
		return command.Failed(err)
	}
	settings, err := cfg.Relay()
	if err != nil {
		return command.Failed(err)
	}
	settings.Source.Conn = &conn.Config
	for _, table := range settings.Tables {
		records, err := rows.Preview(ctx, settings.Rows(), table, previewRows)
		if len(records) == 0 && err == nil {
			fmt.Fprintf(i.stderr, "\n%s is empty: no record to show\n", table)
		}
		for r := range records {
			fmt.Fprintf(i.stderr, "\n%s becomes\n", table)
			writeRecord(i.stderr, &records[r], shortValue)
		}
		if err != nil {
			f := command.Failed(err)
			if rows.IsRefusal(err) {
				f.Exit = exit.Usage
			}
			f.Where = []string{"source: " + command.Address(&conn.Config)}
			f.Object = "table " + table
			return f
		}
	}
	return nil
}
