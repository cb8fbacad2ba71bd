package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// columnFields are the fields of pg_attribute a that a scannedColumn has. listed follows them.
const columnFields = "a.attname, a.atttypid, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text"

// A scannedColumn is a column of a published table.
type scannedColumn struct {
	Column
	generated string // pg_attribute.attgenerated: s (stored), v (virtual), or empty
	listed    bool   // pg_publication_tables.attnames has it
}

func (c *scannedColumn) fields() []any {
	return []any{&c.Name, &c.TypeOID, &c.TypeModifier, &c.TypeName, &c.notNull, &c.generated, &c.listed}
}

// addColumn adds c to the columns of t that the stream has, or to those that it lacks.
func addColumn(t *Table, c scannedColumn, version int, publication string) {
	if reason := c.unsent(version, publication); reason != "" {
		t.Unsent = append(t.Unsent, UnsentColumn{c.Column, c.generated != "", reason})
		if c.generated == "" {
			t.Republish = republish(publication, t.SQLName())
		}
	} else {
		t.Columns = append(t.Columns, c.Column)
	}
}

// republish returns statements that add a table to a publication again, without a column list and row filter.
func republish(publication, table string) string {
	alter := "ALTER PUBLICATION " + replication.QuoteIdent(publication)
	return fmt.Sprintf("BEGIN; %s DROP TABLE %s; %[1]s ADD TABLE %[2]s; COMMIT", alter, table)
}

// unsent returns why a Relation message lacks the column, or "" if it has it.
func (c *scannedColumn) unsent(version int, publication string) string {
	const instead = "write its value to an ordinary column, for example in a BEFORE INSERT trigger"
	switch {
	case c.generated == "v":
		return "Postgres does not send virtual generated columns; make it STORED, or " + instead
	case c.generated != "" && version < 180000:
		return "Postgres sends generated columns only from version 18 on; " + instead
	case c.generated != "" && publication == "":
		return "a publication sends generated columns only with publish_generated_columns = stored"
	case c.generated != "" && !c.listed:
		return "the publication does not send this generated column; run ALTER PUBLICATION " + replication.QuoteIdent(publication) +
			" SET (publish_generated_columns = stored), or add the column to the publication's column list if it has one"
	case !c.listed:
		return "the publication's column list leaves it out"
	}
	return ""
}

// readTable returns a table with the columns that the publication sends of it. If the publication does not exist or does
// not publish the table, these are all columns but generated ones.
func readTable(ctx context.Context, conn executor, o *Outbox, publication string) (Table, error) {
	t := o.table().asTable()
	version, err := readVersion(ctx, conn)
	if err != nil {
		return t, err
	}
	var carriers []string // which may have its rows
	for _, part := range o.Parts {
		carriers = append(carriers, oid(part.OID))
		for _, ancestor := range part.ancestors {
			carriers = append(carriers, oid(ancestor))
		}
	}
	tables, err := readTables(ctx, conn, version, publication, carriers)
	if err != nil {
		return t, err
	}
	for _, part := range o.Parts { // its partitions are published in its place, or it through its root
		if published := (&Publication{Tables: tables}).carrier(part); published != nil {
			t.Columns, t.Unsent, t.Republish = published.Columns, published.Unsent, published.Republish
			return t, nil
		}
	}
	columns, err := query(ctx, conn, func(row pgx.CollectableRow) (c scannedColumn, err error) {
		return c, row.Scan(c.fields()...)
	}, "read the columns", `
		SELECT `+columnFields+`, a.attgenerated = '' FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid(t.OID))
	for _, c := range columns {
		addColumn(&t, c, version, publication)
	}
	return t, err
}
