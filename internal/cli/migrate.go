package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/migrations"
)

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, upgrade or drop the tables of the outbox and the inbox",
		Long: `Migrate creates and upgrades the outbox table and the tables of the inbox. The outbox tables are those of
outbox.tables (default: outbox). The inbox tables, processed_events and inbox_events, belong to the Go
package inbox. Use --only outbox for a service that only writes events, and --only inbox for one that only
consumes them.

The relay also works with a table of your own: name its columns in outbox.columns.`,
		Example: `  outbox-cdc migrate up --dsn postgres://owner@db/app
  outbox-cdc migrate up --partitioned --print
  outbox-cdc migrate up --only inbox --dsn postgres://owner@db/notifications
  outbox-cdc migrate status -c outbox-cdc.yaml`,
		RunE:                       command.Group,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(a.migrateUp(), a.migrateDown(), a.migrateStatus())
	return cmd
}

func (a *app) migrateUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Create or upgrade the tables",
		Long: `Up applies the missing migrations, each in its own transaction. You can repeat it, and run it from several
places at the same time: each waits up to a minute for the others.

With --print, up prints the SQL for other migration tools, and does not connect to a database.`,
		Example: `  outbox-cdc migrate up --dsn postgres://owner@db/app
  outbox-cdc migrate up --only outbox --table app.outbox --partitioned --print > outbox.sql`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "table")
	parts := partFlags(cmd)
	partitioned := cmd.Flags().Bool("partitioned", false, "partition outbox and processed_events by day, so that prune can drop old partitions")
	show := cmd.Flags().Bool("print", false, "print the SQL instead of running it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := a.migrator(s, parts, *partitioned)
		if err != nil {
			return err
		}
		if *show {
			return m.print()
		}
		return m.each(cmd.Context(), func(ctx context.Context, db *sql.DB, table migrations.Config) error {
			done, err := migrations.Up(ctx, db, table)
			m.report(table, "applied", "up to date", done, err)
			return err
		})
	}
	return cmd
}

func (a *app) migrateDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo migrations; without --to, drop the tables and their rows",
		Long: `Down undoes every migration above --to, newest first. The default, 0, drops the tables with all rows. If a
table has rows, down needs --yes. Down refuses while a publication contains the outbox table: run
outbox-cdc setup --drop first.`,
		Example: `  outbox-cdc migrate down --dsn postgres://owner@db/app --only outbox --yes`,
		Args:    command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "table")
	parts := partFlags(cmd)
	to := cmd.Flags().Int64("to", 0, "`version` to keep")
	yes := cmd.Flags().Bool("yes", false, "drop tables that have rows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := a.migrator(s, parts, false)
		if err != nil {
			return err
		}
		err = m.each(cmd.Context(), func(ctx context.Context, db *sql.DB, table migrations.Config) error { // all before any is dropped
			rows, err := migrations.HasRows(ctx, db, table)
			if rows && *to == 0 && !*yes {
				return errHasRows
			}
			return err
		})
		if err != nil {
			return err
		}
		return m.each(cmd.Context(), func(ctx context.Context, db *sql.DB, table migrations.Config) error {
			done, err := migrations.Down(ctx, db, table, *to)
			m.report(table, "undone", "nothing to undo", done, err)
			return err
		})
	}
	return cmd
}

// errHasRows says that migrate down would drop rows.
var errHasRows = errors.New("the table has rows, which migrate down drops with it")

func (a *app) migrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the applied migrations",
		Long:    `Status lists all migrations, oldest first, with the time at which each was applied. It changes nothing.`,
		Example: `  outbox-cdc migrate status --dsn postgres://owner@db/app`,
		Args:    command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "table")
	parts := partFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := a.migrator(s, parts, false)
		if err != nil {
			return err
		}
		return m.each(cmd.Context(), func(ctx context.Context, db *sql.DB, table migrations.Config) error {
			all, err := migrations.Status(ctx, db, table)
			for _, one := range all {
				state := "not applied"
				if !one.AppliedAt.IsZero() {
					state = "applied " + one.AppliedAt.UTC().Format(time.RFC3339)
				}
				fmt.Fprintf(m.out, "%s: %s %s\n", label(table), one.Name, state)
			}
			return err
		})
	}
	return cmd
}

// partNames are the values of --only and --inbox-schema.
type partNames struct{ only, inboxSchema *string }

func partFlags(cmd *cobra.Command) partNames {
	return partNames{
		only:        cmd.Flags().String("only", "", "`part` to migrate: outbox or inbox (default: both)"),
		inboxSchema: cmd.Flags().String("inbox-schema", "", "`schema` of the inbox tables (default: the first of the search_path)"),
	}
}

// A migrator runs migrations on the configured tables.
type migrator struct {
	cfg    *config.Config
	tables []migrations.Config
	out    io.Writer
}

// migrator returns a migrator, or an error if a table's name is not valid. It does not connect.
func (a *app) migrator(s *command.Settings, parts partNames, partitioned bool) (*migrator, error) {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return nil, command.Failed(err)
	}
	m := &migrator{cfg: cfg, out: a.stdout}
	only := migrations.Part(*parts.only)
	if only != "" && only != migrations.Outbox && only != migrations.Inbox {
		f := command.Failed(fmt.Errorf("--only must be outbox or inbox, not %q", only))
		f.Exit = exit.Usage
		return nil, f
	}
	if only != migrations.Inbox {
		for _, name := range cfg.Outbox.Tables {
			m.tables = append(m.tables, migrations.Config{Table: name, Partitioned: partitioned})
		}
	}
	if only != migrations.Outbox {
		m.tables = append(m.tables, migrations.Config{Part: migrations.Inbox, Schema: *parts.inboxSchema, Partitioned: partitioned})
	}
	for _, table := range m.tables {
		if err := table.Validate(); err != nil {
			f := command.Failed(err)
			f.Exit = exit.Usage
			return nil, f
		}
	}
	return m, nil
}

// label returns the name of cfg in the output.
func label(cfg migrations.Config) string {
	if cfg.Part == migrations.Inbox {
		return "inbox"
	}
	return cfg.Table
}

func (m *migrator) print() error {
	for _, table := range m.tables {
		if err := migrations.Print(m.out, table); err != nil {
			return command.Failed(err)
		}
	}
	return nil
}

// each calls do for each table.
func (m *migrator) each(ctx context.Context, do func(context.Context, *sql.DB, migrations.Config) error) error {
	pg, err := m.cfg.Postgres()
	if err != nil {
		return command.Failed(err)
	}
	db := stdlib.OpenDB(*pg)
	defer func() { _ = db.Close() }()
	for _, table := range m.tables {
		if err := do(ctx, db, table); err != nil {
			f := command.Failed(err)
			f.Where = []string{"source: " + command.Address(&pg.Config)}
			f.Object = "table " + label(table)
			if errors.Is(err, errHasRows) {
				f.Exit, f.Next = exit.Usage, "nothing was changed; confirm with --yes"
			}
			return f
		}
	}
	return nil
}

// report prints the migrations of one table, or that there were none.
func (m *migrator) report(table migrations.Config, did, nothing string, done []migrations.Migration, err error) {
	for _, one := range done {
		fmt.Fprintf(m.out, "%s: %s %s\n", label(table), did, one.Name)
	}
	if err == nil && len(done) == 0 {
		fmt.Fprintf(m.out, "%s: %s\n", label(table), nothing)
	}
}
