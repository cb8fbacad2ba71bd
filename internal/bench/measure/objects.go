package measure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/migrations"
)

// schemaSQL creates the objects that fill the outbox. "bench." stands for the schema.
//
//go:embed schema.sql
var schemaSQL string

// makeObjects creates the schema, the table, the procedure that writes rows, and the publication.
func (w *Workbench) makeObjects(ctx context.Context) error {
	if _, err := w.pool.Exec(ctx, `CREATE SCHEMA `+w.name); err != nil {
		return postgresError("make a schema", err)
	}
	w.undo = append(w.undo, removal{
		leftover: Leftover{"schema " + w.name, `DROP SCHEMA ` + w.name + ` CASCADE`},
		drop:     w.statement(`DROP SCHEMA IF EXISTS ` + w.name + ` CASCADE`),
	})
	if err := w.makeTables(ctx); err != nil {
		return postgresError("make the tables", err)
	}
	_, err := w.pool.Exec(ctx, fmt.Sprintf(`CREATE PUBLICATION %[1]s FOR TABLE %[2]s WITH (publish = 'insert')`, w.name, w.table()))
	if err != nil {
		return postgresError("make a publication", err)
	}
	w.undo = append(w.undo, removal{
		leftover: Leftover{"publication " + w.name, `DROP PUBLICATION ` + w.name},
		drop:     w.statement(`DROP PUBLICATION IF EXISTS ` + w.name),
	})
	return nil
}

// makeTables creates the outbox like outbox-cdc migrate, and the objects that fill it.
func (w *Workbench) makeTables(ctx context.Context) error {
	db := stdlib.OpenDBFromPool(w.pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Config{Table: w.table()}); err != nil {
		return err
	}
	if _, err := w.pool.Exec(ctx, strings.ReplaceAll(schemaSQL, "bench.", w.name+".")); err != nil {
		return err
	}
	_, err := w.pool.Exec(ctx, `INSERT INTO `+w.name+`.dust VALUES ($1)`, w.dust.raw)
	return err
}

// table returns the outbox table's name in SQL.
func (w *Workbench) table() string { return w.name + "." + table }

// statement returns a function that runs sql.
func (w *Workbench) statement(sql string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.pool.Exec(ctx, sql)
		return err
	}
}

// insufficientPrivilege is the SQLSTATE for a missing privilege.
const insufficientPrivilege = "42501"

// checkpoint runs a checkpoint, so that none runs during the next measurement. It does nothing if the role may
// not run one.
func (w *Workbench) checkpoint(ctx context.Context) error {
	_, err := w.pool.Exec(ctx, `CHECKPOINT`)
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Code == insufficientPrivilege {
		return nil
	}
	return err
}
