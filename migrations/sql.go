package migrations

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// InitialDays is how many days after today have a partition once Up has made a partitioned table.
const InitialDays = 14

// Config names the table and chooses its form. The zero value is an unpartitioned table called
// outbox.
type Config struct {
	// Table is the name of the outbox table as SQL has it: outbox, app.outbox, "App"."Outbox".
	// Unquoted names fold to lower case. Without a schema it is in the first schema of the
	// search_path. Empty means outbox.
	Table string
	// Partitioned asks for a table partitioned by day. The form is chosen by the first Up and
	// cannot be changed by a later one.
	Partitioned bool
}

// Validate reports a table name that cannot be used. It contacts nobody.
func (cfg Config) Validate() error {
	_, err := cfg.parse()
	return err
}

// parse returns the table cfg names, with room in its name for what is named after it.
func (cfg Config) parse() (tableName, error) {
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

//go:embed sql/*.sql
var embedded embed.FS

// A script is one migration, as written for one table.
type script struct {
	version  int64
	name     string // 00001_outbox
	up, down string
}

// scripts returns all migrations for t, ascending by version.
func scripts(t tableName, partitioned bool) ([]script, error) {
	ups, err := fs.Glob(embedded, "sql/*.up.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make([]script, 0, len(ups))
	for _, file := range ups {
		base := strings.TrimSuffix(file, ".up.sql")
		s := script{name: strings.TrimPrefix(base, "sql/")}
		number, _, _ := strings.Cut(s.name, "_")
		if s.version, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, fmt.Errorf("version of migration %s: %w", s.name, err)
		}
		if s.up, err = render(file, t, partitioned); err != nil {
			return nil, err
		}
		if s.down, err = render(base+".down.sql", t, partitioned); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// render fills the names that belong to t into one file.
func render(file string, t tableName, partitioned bool) (string, error) {
	tmpl, err := template.ParseFS(embedded, file)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", file, err)
	}
	var sql strings.Builder
	err = tmpl.Execute(&sql, map[string]any{
		"Partitioned":      partitioned,
		"Table":            t.String(),
		"TableLiteral":     literal(t.String()),
		"Default":          t.sibling(t.table.with("_default")),
		"CreatePartitions": t.sibling(createPartitions(t.table)),
		"InitialDays":      InitialDays,
	})
	if err != nil {
		return "", fmt.Errorf("render %s: %w", file, err)
	}
	return sql.String(), nil
}

// Print writes the SQL that Up would run on an empty database, for people with a migration tool of
// their own, and as comments the SQL that undoes it. It contains neither BEGIN nor COMMIT: run it
// in a transaction. Names are qualified exactly as cfg.Table is.
func Print(w io.Writer, cfg Config) error {
	t, err := cfg.parse()
	if err != nil {
		return err
	}
	all, err := scripts(t, cfg.Partitioned)
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
