package migrations

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// InitialDays is the number of days after today for which Up creates a partition.
const InitialDays = 14

// A Part is a set of tables that are created, upgraded and dropped together, with versions of their own.
type Part string

// The parts. A service that writes events has an outbox. A service that consumes them has an inbox.
const (
	Outbox Part = "outbox"
	Inbox  Part = "inbox"
)

// Config names the tables and their form. The zero value is an unpartitioned outbox table with the name
// outbox.
type Config struct {
	// Part selects the tables. Empty means Outbox.
	Part Part
	// Table is the name of the outbox table as in SQL: outbox, app.outbox, "App"."Outbox". Unquoted
	// names fold to lower case. Without a schema the table is in the first schema of the search_path.
	// Empty means outbox. The tables of an Inbox have fixed names.
	Table string
	// Schema is the schema of the tables of an Inbox, as in SQL. Empty means the first schema of the
	// search_path. For an Outbox put the schema into Table.
	Schema string
	// Partitioned creates a table that is partitioned by day: the outbox, or processed_events of an
	// Inbox. A later Up cannot change the form of a table.
	Partitioned bool
}

// Validate returns an error if a name cannot be used. It does not connect to the database.
func (cfg Config) Validate() error {
	_, err := cfg.parse()
	return err
}

// claimsTable and eventsTable are the tables of an Inbox.
const (
	claimsTable = "processed_events"
	eventsTable = "inbox_events"
)

// parse returns the outbox table, or the table of claims of an inbox.
func (cfg Config) parse() (tableName, error) {
	switch cmp.Or(cfg.Part, Outbox) {
	case Outbox:
		return cfg.parseOutbox()
	case Inbox:
		return cfg.parseInbox()
	}
	return tableName{}, fmt.Errorf("part %q: want outbox or inbox", string(cfg.Part))
}

func (cfg Config) parseInbox() (tableName, error) {
	t := tableName{table: name{text: claimsTable}}
	if cfg.Table != "" {
		return tableName{}, fmt.Errorf("table %s: the tables of an inbox have fixed names", cfg.Table)
	}
	if cfg.Schema == "" {
		return t, nil
	}
	schema, rest, err := parseName(cfg.Schema)
	if err == nil && rest != "" {
		err = errors.New("want one name")
	}
	if err != nil {
		return tableName{}, fmt.Errorf("schema %q: %w", cfg.Schema, err)
	}
	t.schema = schema
	return t, nil
}

// parseOutbox returns the outbox table. Its name leaves room for the suffix of its function.
func (cfg Config) parseOutbox() (tableName, error) {
	if cfg.Schema != "" {
		return tableName{}, fmt.Errorf("schema %s: put the schema of an outbox into the name of its table", cfg.Schema)
	}
	t, err := parseTable(cmp.Or(cfg.Table, "outbox"))
	if err != nil {
		return tableName{}, err
	}
	if longest := createPartitions(t.table).text; cfg.Partitioned && len(longest) > maxName {
		return tableName{}, fmt.Errorf("table %s: the name of a partitioned table can have at most %d bytes",
			t, maxName-(len(longest)-len(t.table.text)))
	}
	return t, nil
}

func createPartitions(table name) name { return table.with("_create_partitions") }

//go:embed sql
var embedded embed.FS

// A script is the SQL of one migration for one set of tables.
type script struct {
	version  int64
	name     string // 00001_outbox
	up, down string
}

// scripts returns all migrations of a part for t, ascending by version.
func scripts(part Part, t tableName, partitioned bool) ([]script, error) {
	dir := "sql/" + string(cmp.Or(part, Outbox)) + "/"
	ups, err := fs.Glob(embedded, dir+"*.up.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make([]script, 0, len(ups))
	for _, file := range ups {
		base := strings.TrimSuffix(file, ".up.sql")
		s := script{name: strings.TrimPrefix(base, dir)}
		number, _, _ := strings.Cut(s.name, "_")
		if s.version, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, fmt.Errorf("version of migration %s: %w", s.name, err)
		}
		if s.up, err = render(part, file, t, partitioned); err != nil {
			return nil, err
		}
		if s.down, err = render(part, base+".down.sql", t, partitioned); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// ifPartitioned is text of a file for partitioned tables only.
var ifPartitioned = regexp.MustCompile(`(?s)\{\{if partitioned\}\}(.*?)\{\{end\}\}`)

// render returns the SQL of one file for t. It replaces the names in double braces. This is not a text/template: with
// that package the linker keeps every exported method of the program, which then is a third larger.
func render(part Part, file string, t tableName, partitioned bool) (string, error) {
	sql, err := fs.ReadFile(embedded, file)
	if err != nil {
		return "", err
	}
	partitions, err := fs.ReadFile(embedded, "sql/partitions.sql")
	if err != nil {
		return "", err
	}
	kept := ""
	if partitioned {
		kept = "$1"
	}
	text := strings.ReplaceAll(ifPartitioned.ReplaceAllString(string(sql), kept), "{{Partitions}}", string(partitions))
	text = strings.NewReplacer(
		"{{Table}}", t.String(),
		"{{TableLiteral}}", literal(t.String()),
		"{{Events}}", t.sibling(name{text: eventsTable}),
		"{{Default}}", t.sibling(t.table.with("_default")),
		"{{CreatePartitions}}", t.sibling(createPartitions(t.table)),
		"{{InitialDays}}", strconv.Itoa(InitialDays),
		"{{Bound}}", part.bound("day"),
		"{{NextBound}}", part.bound("day + 1"),
	).Replace(text)
	return text, nil
}

// bound returns the SQL of the text of the lowest partition key of a day.
func (p Part) bound(day string) string {
	if p == Inbox {
		return "lpad(to_hex((extract(epoch FROM (" + day + ")::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20)"
	}
	return "to_char(" + day + ", 'YYYY-MM-DD 00:00:00+00')"
}

// Print writes the SQL that Up runs on an empty database, for other migration tools, and as comments the
// SQL that undoes it. The SQL contains neither BEGIN nor COMMIT: run it in a transaction. Names have a
// schema if cfg.Table or cfg.Schema has one.
func Print(w io.Writer, cfg Config) error {
	t, err := cfg.parse()
	if err != nil {
		return err
	}
	all, err := scripts(cfg.Part, t, cfg.Partitioned)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "-- outbox-cdc migration %s\n\n%s\n", s.name, s.up)
	}
	b.WriteString("-- To undo:\n--\n")
	for _, s := range slices.Backward(all) {
		for line := range strings.Lines(s.down) {
			b.WriteString("--   " + line)
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}
