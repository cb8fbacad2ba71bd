package outbox_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// exampleServer runs the examples. They have no *testing.T to take a server from.
var exampleServer = struct {
	sync.Mutex
	*pgserver.Server
}{}

// stopExamples stops exampleServer, if it runs.
func stopExamples() {
	if exampleServer.Server != nil {
		must(exampleServer.Stop(context.Background()))
	}
}

// shop returns a database with the table that `outbox-cdc migrate up` creates and a table of orders.
// order-7 and order-8 are placed.
func shop(ctx context.Context) *pgxpool.Pool {
	exampleServer.Lock()
	defer exampleServer.Unlock()
	if exampleServer.Server == nil {
		exampleServer.Server = value(pgserver.Start(ctx, pgserver.Config{}))
	}
	pool := value(pgxpool.New(ctx, exampleServer.DSN("postgres")))
	run(ctx, pool, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots`)
	run(ctx, pool, `DROP SCHEMA IF EXISTS public, billing CASCADE`)
	run(ctx, pool, `DROP PUBLICATION IF EXISTS nothing`)
	run(ctx, pool, `CREATE SCHEMA public`)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	value(migrations.Up(ctx, db, migrations.Config{}))
	run(ctx, pool, `CREATE TABLE orders (id text PRIMARY KEY, status text NOT NULL)`)
	run(ctx, pool, `INSERT INTO orders VALUES ('order-7', 'placed'), ('order-8', 'placed')`)
	run(ctx, pool, `CREATE PUBLICATION nothing`)
	run(ctx, pool, `SELECT pg_create_logical_replication_slot('examples', 'pgoutput')`)
	return pool
}

// printRows prints the rows of the outbox.
func printRows(ctx context.Context, pool *pgxpool.Pool) {
	show(ctx, pool, `SELECT concat_ws(' ', aggregatetype, aggregateid, type, coalesce(payload::text, 'NULL'), headers::text) FROM outbox ORDER BY position`)
}

// printMessages prints the messages in the log.
func printMessages(ctx context.Context, pool *pgxpool.Pool) {
	show(ctx, pool, `
		SELECT regexp_replace(convert_from(substr(data, 11), 'UTF8'), '^([a-z]+).*?{"id":"[^"]*",', '\1: {"id":…,')
		FROM (
			SELECT overlay(data PLACING '\x2020202020' FROM 11 + position('\x00'::bytea IN substr(data, 11)) - 1) AS data
			FROM pg_logical_slot_get_binary_changes('examples', NULL, NULL, 'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true')
			WHERE get_byte(data, 0) = ascii('M')
		) AS message`)
}

func show(ctx context.Context, pool *pgxpool.Pool, query string) {
	for _, line := range value(pgx.CollectRows(value(pool.Query(ctx, query)), pgx.RowTo[string])) {
		fmt.Println(line)
	}
}

func run(ctx context.Context, pool *pgxpool.Pool, statement string) { value(pool.Exec(ctx, statement)) }

func value[T any](v T, err error) T {
	must(err)
	return v
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
