package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// paid returns the event of a paid order.
func paid(order string) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: order, Type: "OrderPaid", Payload: map[string]string{"order": order}}
}

const pay = `UPDATE orders SET status = 'paid' WHERE id = $1`

// sqlx: the *sql.Tx is the field Tx of *sqlx.Tx.
func withSQLX(ctx context.Context, db *sqlx.DB, order string) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NamedExecContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = :id`, map[string]any{"id": order}); err != nil {
		return err
	}
	if err := outbox.WriteSQL(ctx, tx.Tx, paid(order)); err != nil {
		return err
	}
	return tx.Commit()
}

// GORM: it is the ConnPool of the transaction's Statement, or the Tx in it if GORM prepares statements.
func withGORM(ctx context.Context, db *gorm.DB, order string) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Table("orders").Where("id = ?", order).Update("status", "paid").Error; err != nil {
			return err
		}
		sqlTx, err := gormTx(tx)
		if err != nil {
			return err
		}
		return outbox.WriteSQL(ctx, sqlTx, paid(order))
	})
}

func gormTx(db *gorm.DB) (*sql.Tx, error) {
	conn := db.Statement.ConnPool
	if prepared, ok := conn.(*gorm.PreparedStmtTX); ok {
		conn = prepared.Tx
	}
	if tx, ok := conn.(*sql.Tx); ok {
		return tx, nil
	}
	return nil, errors.New("not in a transaction")
}

// bun: the *sql.Tx is the field Tx of bun.Tx.
func withBun(ctx context.Context, db *bun.DB, order string) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewUpdate().Table("orders").Set("status = ?", "paid").Where("id = ?", order).Exec(ctx); err != nil {
			return err
		}
		return outbox.WriteSQL(ctx, tx.Tx, paid(order))
	})
}

// ent: begin the transaction first, and create the client for it:
// client := ent.NewClient(ent.Driver(driverOf(tx))).
func withEnt(ctx context.Context, db *sql.DB, order string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	query, args := entsql.Dialect(dialect.Postgres).Update("orders").Set("status", "paid").Where(entsql.EQ("id", order)).Query()
	var result sql.Result
	if err := driverOf(tx).Exec(ctx, query, args, &result); err != nil { // stands for client.Order.UpdateOneID(order)…
		return err
	}
	if err := outbox.WriteSQL(ctx, tx, paid(order)); err != nil {
		return err
	}
	return tx.Commit()
}

// An entDriver is an ent driver for one transaction. Transactions of its clients are this one.
type entDriver struct{ *entsql.Driver }

func driverOf(tx *sql.Tx) entDriver {
	return entDriver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}
}

func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d.Driver), nil }

// database/sql alone.
func withSQL(ctx context.Context, db *sql.DB, order string, write func(context.Context, *sql.Tx, ...outbox.Event) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, pay, order); err != nil {
		return err
	}
	if err := write(ctx, tx, paid(order), paid(order)); err != nil {
		return err
	}
	return tx.Commit()
}

// Each library writes the event, and writes nothing if the table does not exist.
func TestEveryLibrary(t *testing.T) {
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		for name, test := range map[string]struct {
			rows int
			pay  func(t *testing.T, dsn, order string) error
		}{
			"sqlx over lib/pq": {1, func(t *testing.T, dsn, order string) error {
				return withSQLX(t.Context(), sqlx.NewDb(open(t, "postgres", dsn), "postgres"), order)
			}},
			"sqlx over pgx": {1, func(t *testing.T, dsn, order string) error {
				return withSQLX(t.Context(), sqlx.NewDb(open(t, "pgx", dsn), "pgx"), order)
			}},
			"GORM": {1, func(t *testing.T, dsn, order string) error {
				db, err := gorm.Open(postgres.New(postgres.Config{Conn: open(t, "pgx", dsn)}))
				if err != nil {
					t.Fatal(err)
				}
				return withGORM(t.Context(), db, order)
			}},
			"GORM with prepared statements": {1, func(t *testing.T, dsn, order string) error {
				db, err := gorm.Open(postgres.New(postgres.Config{Conn: open(t, "pgx", dsn)}), &gorm.Config{PrepareStmt: true})
				if err != nil {
					t.Fatal(err)
				}
				return withGORM(t.Context(), db, order)
			}},
			"bun over pgdriver": {1, func(t *testing.T, dsn, order string) error {
				db := sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(dsn), pgdriver.WithInsecure(true)))
				defer db.Close()
				return withBun(t.Context(), bun.NewDB(db, pgdialect.New()), order)
			}},
			"ent": {1, func(t *testing.T, dsn, order string) error { return withEnt(t.Context(), open(t, "pgx", dsn), order) }},
			"lib/pq": {2, func(t *testing.T, dsn, order string) error {
				return withSQL(t.Context(), open(t, "postgres", dsn), order, outbox.WriteSQL)
			}},
			"lib/pq, emitting": {0, func(t *testing.T, dsn, order string) error {
				return withSQL(t.Context(), open(t, "postgres", dsn), order, outbox.WriteMessageSQL)
			}},
			"pgdriver": {2, func(t *testing.T, dsn, order string) error {
				db := sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(dsn), pgdriver.WithInsecure(true)))
				defer db.Close()
				return withSQL(t.Context(), db, order, outbox.WriteSQL)
			}},
			"pgx": {2, func(t *testing.T, dsn, order string) error {
				return withSQL(t.Context(), open(t, "pgx", dsn), order, outbox.WriteSQL)
			}},
		} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.DatabaseOn(t, srv)
				pool := stdlib.OpenDB(*db.Conn(t).Config())
				defer pool.Close()
				if _, err := migrations.Up(t.Context(), pool, migrations.Config{}); err != nil {
					t.Fatal(err)
				}
				db.Exec(t, `CREATE TABLE orders (id text PRIMARY KEY, status text); INSERT INTO orders VALUES ('order-7', 'placed'), ('order-8', 'placed')`)
				if err := test.pay(t, db.DSN, "order-7"); err != nil {
					t.Fatal(err)
				}
				const written = `SELECT count(*)::int FROM outbox WHERE aggregateid = 'order-7' AND type = 'OrderPaid' AND payload = '{"order": "order-7"}'`
				if n := pgtest.QueryRow[int](t, db, written); n != test.rows {
					t.Errorf("%d events, want %d", n, test.rows)
				}
				db.Exec(t, `DROP TABLE outbox`)
				if err := test.pay(t, db.DSN, "order-8"); test.rows > 0 && !errors.Is(err, outbox.ErrNoTable) {
					t.Errorf("without the table: %v", err)
				}
				if n := pgtest.QueryRow[int](t, db, `SELECT count(*)::int FROM orders WHERE id = 'order-8' AND status = 'paid'`); test.rows > 0 && n > 0 {
					t.Error("an order was paid without its event")
				}
			})
		}
	})
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
