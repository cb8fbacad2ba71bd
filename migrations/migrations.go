package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// Errors of Up and Down. An error that wraps one of these names the objects.
var (
	// ErrTableExists means that a table of that name exists and Up has not created it.
	ErrTableExists = errors.New("the table exists and was not created by these migrations")
	// ErrForm means that the table is partitioned and Config.Partitioned is false, or the reverse.
	ErrForm = errors.New("cannot change the partitioning of an existing table")
	// ErrDropped means that the table was created by Up, and was not dropped by Down.
	ErrDropped = errors.New("the table was created by these migrations, and somebody has dropped it")
	// ErrPublished means that a publication still contains the table, so a relay may be reading it.
	ErrPublished = errors.New("a publication contains the table")
	// ErrNoSchema means that the schema of Config does not exist, or that Config names none, and none of the search_path exists.
	ErrNoSchema = errors.New("there is no such schema")
)

// A Migration is one version of the schema.
type Migration struct {
	Version   int64
	Name      string    // such as 00001_outbox
	AppliedAt time.Time // zero if it is not applied
}

// Up creates the tables of cfg, or upgrades them to the newest version. It returns the migrations that it
// applied, none if the tables were up to date. Each migration is one transaction: after an error the
// earlier ones stay applied, and you can call Up again.
//
// Several deployers may call Up at the same time: a session-level advisory lock lets one run after the
// other. Up waits for the lock for a minute. Then it returns an error that names the session that holds
// it.
//
// db must use the stdlib driver of pgx. It must connect to the server directly, or through a pooler in
// session mode.
func Up(ctx context.Context, db *sql.DB, cfg Config) ([]Migration, error) {
	m, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	if err := m.checkTable(ctx, cfg); err != nil {
		return nil, err
	}
	done, err := m.run(ctx, (*goose.Provider).Up)
	if err != nil {
		return done, err
	}
	return done, m.checkTable(ctx, cfg) // another deployer may have been first
}

// Down undoes the migrations above version to, newest first, and returns them. Version 0 drops the tables
// with all rows and partitions. If a publication contains the table, Down returns [ErrPublished]. It
// ignores cfg.Partitioned.
func Down(ctx context.Context, db *sql.DB, cfg Config, to int64) ([]Migration, error) {
	m, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	return m.run(ctx, func(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) {
		return p.DownTo(ctx, to)
	})
}

// HasRows reports whether a table that Down drops has rows.
func HasRows(ctx context.Context, db *sql.DB, cfg Config) (bool, error) {
	m, err := open(ctx, db, cfg)
	if err != nil {
		return false, err
	}
	tables := []string{m.table.String()}
	if cfg.Part == Inbox {
		tables = append(tables, m.table.sibling(name{text: receivedTable}))
	}
	for _, table := range tables {
		var exists, rows bool
		if err := db.QueryRowContext(ctx, `SELECT pg_catalog.to_regclass($1) IS NOT NULL`, table).Scan(&exists); err != nil {
			return false, fmt.Errorf("look up table %s: %w", table, err)
		}
		if !exists {
			continue
		}
		if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM `+table+`)`).Scan(&rows); err != nil || rows {
			return rows, err
		}
	}
	return false, nil
}

// receivedTable has the events that an inbox has received and not processed.
const receivedTable = "inbox_events"

// Status returns all migrations, oldest first. It changes nothing and takes no lock.
func Status(ctx context.Context, db *sql.DB, cfg Config) ([]Migration, error) {
	m, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	return m.status(ctx)
}

// A migrator applies the migrations of one part.
type migrator struct {
	db      *sql.DB
	table   tableName // with its schema: the outbox, or the claims of an inbox
	history history
	scripts []script
}

// open reads the schema from the database if cfg has none, and the form of an existing table.
func open(ctx context.Context, db *sql.DB, cfg Config) (*migrator, error) {
	table, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	if table.schema.text == "" {
		var schema sql.NullString
		var path string
		if err := db.QueryRowContext(ctx, `SELECT pg_catalog.quote_ident(current_schema()), pg_catalog.current_setting('search_path')`).Scan(&schema, &path); err != nil {
			return nil, fmt.Errorf("read search_path: %w", err)
		}
		if !schema.Valid {
			return nil, fmt.Errorf("table %s: %w in the search_path, which is: %s; create the schema, or name another one with the table", table, ErrNoSchema, path)
		}
		if table.schema, _, err = parseName(schema.String); err != nil {
			return nil, fmt.Errorf("schema %s: %w", schema.String, err)
		}
	}
	entries, err := newHistory(table, cfg.Partitioned).entries(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", historyTable, err)
	}
	partitioned := cfg.Partitioned
	if len(entries) > 0 {
		partitioned = entries[0].partitioned
	}
	m := &migrator{db: db, table: table, history: newHistory(table, partitioned)}
	m.scripts, err = scripts(cfg.Part, table, partitioned)
	return m, err
}

// checkTable returns ErrForm if the form of the table differs from cfg, and ErrDropped if only the history has it.
func (m *migrator) checkTable(ctx context.Context, cfg Config) error {
	entries, err := m.history.entries(ctx, m.db)
	dropped := false
	if err == nil && len(entries) > 0 {
		err = m.db.QueryRowContext(ctx, `SELECT pg_catalog.to_regclass($1) IS NULL`, m.table.String()).Scan(&dropped)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", historyTable, err)
	case dropped:
		return fmt.Errorf("%s: %w: undo the migrations with migrate down --only %s, then run migrate up again", m.table, ErrDropped, cmp.Or(cfg.Part, Outbox))
	case len(entries) > 0 && entries[0].partitioned && !cfg.Partitioned:
		return fmt.Errorf("%s: %w: it is partitioned", m.table, ErrForm)
	case len(entries) > 0 && !entries[0].partitioned && cfg.Partitioned:
		return fmt.Errorf("%s: %w: it is not partitioned", m.table, ErrForm)
	}
	return nil
}

func (m *migrator) status(ctx context.Context) ([]Migration, error) {
	entries, err := m.history.entries(ctx, m.db)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", historyTable, err)
	}
	applied := make(map[int64]time.Time, len(entries))
	for _, e := range entries {
		applied[e.version] = e.at
	}
	all := make([]Migration, len(m.scripts))
	for i, s := range m.scripts {
		all[i] = Migration{Version: s.version, Name: s.name, AppliedAt: applied[s.version]}
	}
	return all, nil
}

// run calls f with a goose provider, and returns the migrations that f applied or undid.
func (m *migrator) run(
	ctx context.Context, f func(*goose.Provider, context.Context) ([]*goose.MigrationResult, error),
) ([]Migration, error) {
	steps := make([]*goose.Migration, len(m.scripts))
	for i, s := range m.scripts {
		steps[i] = goose.NewGoMigration(s.version, &goose.GoFunc{RunTx: m.up(s)}, &goose.GoFunc{RunTx: m.down(s)})
	}
	provider, err := goose.NewProvider(goose.DialectCustom, m.db, nil,
		goose.WithStore(m.history), goose.WithSessionLocker(locker{lockWait}),
		goose.WithGoMigrations(steps...), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	results, err := f(provider, ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results, err = partial.Applied, partial.Err
	}
	if len(results) == 0 {
		return nil, err
	}
	done, statusErr := m.status(ctx)
	done = slices.DeleteFunc(done, func(one Migration) bool {
		return !slices.ContainsFunc(results, func(r *goose.MigrationResult) bool { return r.Source.Version == one.Version })
	})
	return done, errors.Join(err, statusErr)
}

// up returns the function that applies s.
func (m *migrator) up(s script) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.up)
		switch pgErr, _ := errors.AsType[*pgconn.PgError](err); {
		case err == nil:
			return nil
		case pgErr != nil && pgErr.Code == "42P07": // duplicate_table
			return fmt.Errorf("migration %s: %w: %w", s.name, ErrTableExists, err)
		case pgErr != nil && pgErr.Code == "3F000": // invalid_schema_name
			return fmt.Errorf("migration %s: %w: %w", s.name, ErrNoSchema, err)
		}
		return fmt.Errorf("migration %s: %w", s.name, err)
	}
}

// down returns the function that undoes s.
func (m *migrator) down(s script) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if err := m.unpublished(ctx, tx); err != nil {
			return fmt.Errorf("undo migration %s: %w", s.name, err)
		}
		if _, err := tx.ExecContext(ctx, s.down); err != nil {
			return fmt.Errorf("undo migration %s: %w", s.name, err)
		}
		return nil
	}
}

// unpublished returns ErrPublished if a publication contains the table or one of its partitions. Postgres
// would remove a dropped table from the publication without an error.
func (m *migrator) unpublished(ctx context.Context, tx *sql.Tx) error {
	var publications string
	err := tx.QueryRowContext(ctx, `
		SELECT coalesce(pg_catalog.string_agg(DISTINCT p.pubname, ', '), '')
		FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
		WHERE r.prrelid = pg_catalog.to_regclass($1)
		   OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1)))`, m.table.String()).Scan(&publications)
	if err != nil {
		return fmt.Errorf("find publications: %w", err)
	}
	if publications != "" {
		return fmt.Errorf("%s: %w: %s", m.table, ErrPublished, publications)
	}
	return nil
}
