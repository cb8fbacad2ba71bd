package cli

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/migrations"
)

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, upgrade or remove the tables of outbox and inbox",
		Long: `Migrate creates the outbox table and the tables of the inbox, or upgrades them to the newest form.
Its subcommands work on the tables of outbox.tables, by default one called outbox (--table names
another), and on processed_events and inbox_events, which the Go package inbox uses. --only leaves
out what a service does not need: one that only writes events has no inbox, one that only consumes
them no outbox.

The relay does not need a table made here: any works whose columns are named in outbox.columns.`,
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
		Long: `Up applies the migrations that are missing, each in one transaction. It may be repeated, and
several deployers may run it at the same time: each waits up to a minute for the others.

With --print it contacts no database and prints the SQL, for use with other migration tools.`,
		Example: `  outbox-cdc migrate up --dsn postgres://owner@db/app
  outbox-cdc migrate up --only outbox --table app.outbox --partitioned --print > outbox.sql`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "table")
	parts := partFlags(cmd)
	partitioned := cmd.Flags().Bool("partitioned", false, "range-partition outbox and processed_events by day, so that what is old is dropped by partition")
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
		Short: "Undo migrations; without --to, remove the tables and their rows",
		Long: `Down undoes every migration above --to, newest first. 0, the default, removes the tables with all their rows.
It refuses while a publication contains the outbox: outbox-cdc setup --drop comes first.`,
		Example: `  outbox-cdc migrate down --dsn postgres://owner@db/app --only outbox --to 0`,
		Args:    command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "table")
	parts := partFlags(cmd)
	to := cmd.Flags().Int64("to", 0, "last `version` to keep")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := a.migrator(s, parts, false)
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

func (a *app) migrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show which migrations are applied",
		Long:    `Status lists all migrations, oldest first, and when each was applied. It changes nothing.`,
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

// partNames are what --only and --inbox-schema say.
type partNames struct{ only, inboxSchema *string }

func partFlags(cmd *cobra.Command) partNames {
	return partNames{
		only:        cmd.Flags().String("only", "", "`part`: outbox or inbox; without it, both"),
		inboxSchema: cmd.Flags().String("inbox-schema", "", "`schema` of the inbox's tables; without it, the first one of the search_path"),
	}
}

// A migrator works on the tables of a configuration.
type migrator struct {
	cfg    *config.Config
	tables []migrations.Config
	out    io.Writer
}

// migrator checks the tables' names before anything is contacted.
func (a *app) migrator(s *command.Settings, parts partNames, partitioned bool) (*migrator, error) {
	cfg, err := s.Load(a.environ)
	if err != nil {
		return nil, command.Failed(err)
	}
	m := &migrator{cfg: cfg, out: a.stdout}
	only := migrations.Part(*parts.only)
	if only != "" && only != migrations.Outbox && only != migrations.Inbox {
		f := command.Failed(fmt.Errorf("--only %s: want outbox or inbox", only))
		f.Exit = relay.ExitUsage
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
			f.Exit = relay.ExitUsage
			return nil, f
		}
	}
	return m, nil
}

// label is what a person calls the tables of cfg.
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

// each calls do for every table.
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
			return f
		}
	}
	return nil
}

// report prints what was done to one table, or that there was nothing to do.
func (m *migrator) report(table migrations.Config, did, nothing string, done []migrations.Migration, err error) {
	for _, one := range done {
		fmt.Fprintf(m.out, "%s: %s %s\n", label(table), did, one.Name)
	}
	if err == nil && len(done) == 0 {
		fmt.Fprintf(m.out, "%s: %s\n", label(table), nothing)
	}
}
