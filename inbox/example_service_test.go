package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func TestEverySymbolHasAnExample(t *testing.T) { apitest.Examples(t, "inbox") }

// exampleServer runs the examples. They have no *testing.T to take a server from.
var exampleServer = struct {
	sync.Mutex
	*pgserver.Server
}{}

// withExamples also stops the server of the examples.
type withExamples struct{ *testing.M }

func (m withExamples) Run() int {
	defer func() {
		if exampleServer.Server != nil {
			must(exampleServer.Stop(context.Background()))
		}
	}()
	return m.M.Run()
}

// service returns a database with the tables that `outbox-cdc migrate up --only inbox` creates and a table
// for effects.
func service(ctx context.Context) *pgxpool.Pool {
	exampleServer.Lock()
	defer exampleServer.Unlock()
	if exampleServer.Server == nil {
		exampleServer.Server = value(pgserver.Start(ctx, pgserver.Config{}))
	}
	pool := value(pgxpool.New(ctx, exampleServer.DSN("postgres")))
	for _, statement := range []string{
		`DROP SCHEMA IF EXISTS public, mail CASCADE`, `CREATE SCHEMA public`, `CREATE SCHEMA mail`,
		`CREATE TABLE mails (n bigint GENERATED ALWAYS AS IDENTITY, recipient text NOT NULL, message text NOT NULL)`,
	} {
		value(pool.Exec(ctx, statement))
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	for _, schema := range []string{"public", "mail"} {
		value(migrations.Up(ctx, db, migrations.Config{Part: migrations.Inbox, Schema: schema}))
	}
	return pool
}

// mail writes the effect of the examples.
func mail(ctx context.Context, tx pgx.Tx, recipient, message string) error {
	_, err := tx.Exec(ctx, `INSERT INTO mails (recipient, message) VALUES ($1, $2)`, recipient, message)
	return err
}

// printMails prints the effects.
func printMails(ctx context.Context, pool *pgxpool.Pool) {
	rows := value(pool.Query(ctx, `SELECT recipient || ': ' || message FROM mails ORDER BY n`))
	for _, line := range value(pgx.CollectRows(rows, pgx.RowTo[string])) {
		fmt.Println(line)
	}
}

// record returns an event as an adapter passes it to Handle.
func record(offset int64, key, kind, payload string) inbox.Event {
	return inbox.Event{
		ID: uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, key, offset)), Type: kind, Topic: "outbox.event.order", Key: []byte(key), Offset: offset,
		Payload: []byte(payload), Time: time.Now(),
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
