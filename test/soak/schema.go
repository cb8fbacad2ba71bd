package soak

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// schema creates the writers' own tables, which are not published. agg holds the
// highest number of each aggregate. A writer locks the aggregate by updating its
// row. done holds the ids of committed transactions.
const schema = `
CREATE SCHEMA oracle;
CREATE TABLE oracle.agg (aggregate text PRIMARY KEY, seq bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE oracle.done (tx uuid PRIMARY KEY)`

// aggregateName returns the name of the i-th aggregate.
func aggregateName(i int) string { return fmt.Sprintf("agg-%03d", i) }

// CreateSchema creates the writers' tables for the given number of aggregates. The
// outbox table must exist.
func CreateSchema(ctx context.Context, dsn string, aggregates int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, schema); err != nil {
		return fmt.Errorf("create the writers' tables: %w", err)
	}
	names := make([]string, aggregates)
	for i := range names {
		names[i] = aggregateName(i)
	}
	if _, err := conn.Exec(ctx, `INSERT INTO oracle.agg SELECT name, 0 FROM unnest($1::text[]) AS name`, names); err != nil {
		return fmt.Errorf("fill the writers' tables: %w", err)
	}
	return nil
}
