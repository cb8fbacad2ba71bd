package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestEverySymbolHasAnExample(t *testing.T) { apitest.Examples(t, "migrations") }

// exampleServer runs the examples. They have no *testing.T to take a server from.
var exampleServer = struct {
	sync.Mutex
	*pgserver.Server
	databases int
}{}

// withExamples also stops exampleServer.
type withExamples struct{ *testing.M }

func (m withExamples) Run() int {
	defer func() {
		if exampleServer.Server != nil {
			_ = exampleServer.Stop(context.Background())
		}
	}()
	return m.M.Run()
}

func TestMain(m *testing.M) { pgtest.Main(withExamples{m}) }

// database returns an empty database.
func database(ctx context.Context) *sql.DB {
	exampleServer.Lock()
	defer exampleServer.Unlock()
	if exampleServer.Server == nil {
		exampleServer.Server = value(pgserver.Start(ctx, pgserver.Config{}))
	}
	exampleServer.databases++
	name := fmt.Sprint("example", exampleServer.databases)
	admin := stdlib.OpenDB(*value(pgx.ParseConfig(exampleServer.DSN("postgres"))))
	defer admin.Close()
	value(admin.ExecContext(ctx, `CREATE DATABASE `+name))
	return stdlib.OpenDB(*value(pgx.ParseConfig(exampleServer.DSN(name)))) // or sql.Open("pgx", dsn)
}

func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Create or upgrade the table when the service is deployed.
func ExampleUp() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	for range 2 {
		applied, err := migrations.Up(ctx, db, migrations.Config{})
		fmt.Println(len(applied), err)
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
}

func ExampleDown() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	cfg := migrations.Config{Table: `app."Outbox"`}
	value(db.ExecContext(ctx, `CREATE SCHEMA app`))
	value(migrations.Up(ctx, db, cfg))
	value(db.ExecContext(ctx, `CREATE PUBLICATION outbox_cdc FOR TABLE app."Outbox"`))
	_, err := migrations.Down(ctx, db, cfg, 0)
	fmt.Println(errors.Is(err, migrations.ErrPublished), err)
	value(db.ExecContext(ctx, `DROP PUBLICATION outbox_cdc`))
	undone, err := migrations.Down(ctx, db, cfg, 0)
	fmt.Println(undone[0].Name, err)
	value(migrations.Up(ctx, db, cfg))
	value(db.ExecContext(ctx, `DROP TABLE app."Outbox"`))
	_, err = migrations.Up(ctx, db, cfg)
	fmt.Println(errors.Is(err, migrations.ErrDropped))
	// Output:
	// true undo migration 00001_outbox: app."Outbox": a publication contains the table: outbox_cdc
	// 00001_outbox <nil>
	// true
}

// Before Down drops tables, ask whether they have rows.
func ExampleHasRows() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	inbox := migrations.Config{Part: migrations.Inbox}
	fmt.Println(migrations.HasRows(ctx, db, inbox)) // there is no table yet
	value(migrations.Up(ctx, db, inbox))
	fmt.Println(migrations.HasRows(ctx, db, inbox))
	value(db.ExecContext(ctx, `INSERT INTO processed_events (consumer, event_id) VALUES ('stock', gen_random_uuid())`))
	fmt.Println(migrations.HasRows(ctx, db, inbox))
	// Output:
	// false <nil>
	// false <nil>
	// true <nil>
}

func ExampleStatus() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	inbox := migrations.Config{Part: migrations.Inbox}
	value(migrations.Up(ctx, db, inbox))
	for _, cfg := range []migrations.Config{{Part: migrations.Outbox}, inbox} {
		for _, m := range value(migrations.Status(ctx, db, cfg)) {
			fmt.Println(m.Version, m.Name, "applied:", !m.AppliedAt.IsZero())
		}
	}
	// Output:
	// 1 00001_outbox applied: false
	// 1 00001_inbox applied: true
}

// Print the SQL for another migration tool.
func ExamplePrint() {
	var sql strings.Builder
	if err := migrations.Print(&sql, migrations.Config{Table: "app.outbox"}); err != nil {
		panic(err)
	}
	for line := range strings.Lines(sql.String()) {
		if strings.HasPrefix(line, "CREATE") || strings.HasPrefix(line, "--   ") {
			_, _ = os.Stdout.WriteString(line)
		}
	}
	// Output:
	// CREATE TABLE app.outbox (
	// --   DROP TABLE IF EXISTS app.outbox;
}

// The inbox tables in a schema of their own, with processed_events partitioned by day.
func ExampleConfig() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	value(db.ExecContext(ctx, `CREATE SCHEMA mail`))
	value(migrations.Up(ctx, db, migrations.Config{Part: migrations.Inbox, Schema: "mail", Partitioned: true}))
	_, err := migrations.Up(ctx, db, migrations.Config{Part: migrations.Inbox, Schema: "mail"})
	if errors.Is(err, migrations.ErrNoSchema) { // without Schema, that of the search_path counts
		panic(err)
	}
	fmt.Println(errors.Is(err, migrations.ErrForm), err)
	var partitions int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'mail.processed_events'::regclass`).Scan(&partitions); err != nil {
		panic(err)
	}
	fmt.Println("default, today and InitialDays:", partitions == 2+migrations.InitialDays)
	// Output:
	// true mail.processed_events: cannot change the partitioning of an existing table: it is partitioned
	// default, today and InitialDays: true
}

func ExampleConfig_Validate() {
	fmt.Println(migrations.Config{Table: "out box"}.Validate())
	// Output: table "out box": want a name or schema.name
}

func ExamplePart() {
	fmt.Println(migrations.Outbox, migrations.Inbox)
	// Output: outbox inbox
}

func ExampleMigration() {
	ctx := context.Background()
	db := database(ctx)
	defer db.Close()
	value(db.ExecContext(ctx, `CREATE TABLE outbox (id uuid)`))
	_, err := migrations.Up(ctx, db, migrations.Config{})
	fmt.Println(errors.Is(err, migrations.ErrTableExists))
	for _, m := range value(migrations.Status(ctx, db, migrations.Config{})) {
		fmt.Println(m.Version, m.Name, m.AppliedAt.IsZero())
	}
	// Output:
	// true
	// 1 00001_outbox true
}
