package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(withExamples{m}) }

// withExamples also stops the server of the examples.
type withExamples struct{ *testing.M }

func (m withExamples) Run() int {
	defer stopExamples()
	return m.M.Run()
}

// database returns a database with the default outbox table.
func database(tb testing.TB, srv *pgserver.Server) *pgtest.DB {
	tb.Helper()
	db := pgtest.DatabaseOn(tb, srv)
	p := stdlib.OpenDB(*db.Conn(tb).Config())
	defer p.Close()
	if _, err := migrations.Up(tb.Context(), p, migrations.Config{}); err != nil {
		tb.Fatal(err)
	}
	return db
}

// inTx runs f in a transaction of conn and commits it.
func inTx(tb testing.TB, conn *pgx.Conn, f func(ctx context.Context, tx pgx.Tx) error) {
	tb.Helper()
	err := pgx.BeginFunc(tb.Context(), conn, func(tx pgx.Tx) error { return f(tb.Context(), tx) })
	if err != nil {
		tb.Fatal(err)
	}
}
