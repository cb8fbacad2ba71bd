package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/connector"
	"github.com/outbox-cdc/outbox-cdc/internal/debezium"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// previewRows is how many rows of each table are shown as records.
const previewRows = 3

// preview prints, on standard error, the records that the last rows of the outbox tables would
// become with the configuration that has just been made.
func (i *importing) preview(ctx context.Context, result *debezium.Result, conn *pgx.ConnConfig) error {
	var environ []string
	for _, name := range result.Variables { // they are not needed to reach the database, but have to be there
		environ = append(environ, name+"=1")
	}
	cfg, err := config.Load(config.Sources{File: "the configuration", Content: result.YAML, Environ: environ})
	if err != nil {
		return failed(err)
	}
	relay, err := cfg.Connector()
	if err != nil {
		return failed(err)
	}
	relay.Source.Conn = &conn.Config
	for _, table := range relay.Tables {
		records, err := connector.Preview(ctx, relay, table, previewRows)
		if len(records) == 0 && err == nil {
			fmt.Fprintf(i.stderr, "\n%s is empty: there is no record to show\n", table)
		}
		for r := range records {
			fmt.Fprintf(i.stderr, "\n%s becomes\n", table)
			writeRecord(i.stderr, &records[r], shortValue)
		}
		if err != nil {
			f := failed(err)
			if connector.IsRefusal(err) {
				f.exit = connector.ExitUsage
			}
			f.where = []string{"source: " + address(&conn.Config)}
			f.object = "table " + table
			return f
		}
	}
	return nil
}

// writeRecord shows the bytes of a record, of its value up to most.
func writeRecord(w io.Writer, rec *sink.Record, most int) {
	topic := rec.Topic
	if rec.Partition != sink.AnyPartition {
		topic += fmt.Sprintf(", partition %d", rec.Partition)
	}
	fmt.Fprintf(w, "  topic   %s\n  key     %s\n  value   %s\n", topic, visible(rec.Key), visibleUpTo(rec.Value, most))
	for _, h := range rec.Headers {
		fmt.Fprintf(w, "  header  %s: %s\n", oneLine(h.Key), visible(h.Value))
	}
}

// shortValue is how much of a value is enough to recognize it.
const shortValue = 400

// visible shows bytes and how many they are: text as it is, in quotes where blanks or control
// characters would not be seen, anything else in hexadecimal.
func visible(b []byte) string { return visibleUpTo(b, shortValue) }

// visibleUpTo is visible of the first bytes, up to most.
func visibleUpTo(b []byte, most int) string {
	switch {
	case b == nil:
		return "null"
	case len(b) == 0:
		return "empty"
	}
	shown, more := b, ""
	if len(b) > most {
		for shown = b[:most]; len(shown) > most-utf8.UTFMax && !utf8.Valid(shown); {
			shown = shown[:len(shown)-1]
		}
		more = "…"
	}
	text := string(shown) + more
	switch {
	case !utf8.Valid(shown):
		text = fmt.Sprintf("0x%x%s", shown, more)
	case strings.ContainsFunc(text, unicode.IsControl), strings.TrimSpace(text) != text:
		text = strconv.Quote(text)
	}
	return fmt.Sprintf("%s (%d bytes)", text, len(b))
}
