package catalog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A HiddenError says that row-level security of a table hides rows from the role. To read or delete the others would
// look like all of them. It is a [replication.ErrAccess].
// https://www.postgresql.org/docs/current/ddl-rowsecurity.html
type HiddenError struct {
	Table    string   // in SQL, with its schema
	Policies []string // empty: the role sees no row
	Role     string
	Owner    bool // the role owns the table, which has FORCE ROW LEVEL SECURITY
}

// Error names the table, its policies and the statement that fixes it.
func (e *HiddenError) Error() string {
	return fmt.Sprintf("%v: %s: %s", replication.ErrAccess, e.What(), e.Fix())
}

// What names the table and its policies.
func (e *HiddenError) What() string {
	policies := "it has no policy, so every row is hidden"
	if len(e.Policies) > 0 {
		policies = "policies: " + strings.Join(e.Policies, ", ")
	}
	return fmt.Sprintf("row-level security of table %s hides rows from role %q (%s)", e.Table, e.Role, policies)
}

// Fix returns the statement with which the role sees every row.
func (e *HiddenError) Fix() string {
	if e.Owner {
		return fmt.Sprintf("ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS", e.Table, replication.QuoteIdent(e.Role))
	}
	return fmt.Sprintf("ALTER ROLE %s BYPASSRLS; or connect as the owner of the table", replication.QuoteIdent(e.Role))
}

// Unwrap returns [replication.ErrAccess].
func (e *HiddenError) Unwrap() error { return replication.ErrAccess }

// VerifyRows returns a [*HiddenError] if the role would not see every row of the tables, which are given by OID.
func VerifyRows(ctx context.Context, conn *pgconn.PgConn, tables ...uint32) error {
	hidden, err := findHidden(ctx, conn, tables)
	if err == nil && hidden != nil {
		err = hidden
	}
	return err
}

// VerifyNamedRows is VerifyRows for tables that are named as in SQL. It ignores those that do not exist.
func VerifyNamedRows(ctx context.Context, conn *pgconn.PgConn, names ...string) error {
	oids, err := query(ctx, conn, pgx.RowTo[uint32], "look up the tables",
		"SELECT c.oid FROM pg_catalog.unnest($1::text[]) AS name JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(name)", arrayLiteral(names))
	if err != nil {
		return err
	}
	return VerifyRows(ctx, conn, oids...)
}

// findHidden returns the first of the tables whose rows are hidden, or nil. It needs no privilege.
func findHidden(ctx context.Context, conn executor, tables []uint32) (*HiddenError, error) {
	oids := make([]string, len(tables))
	for i, table := range tables {
		oids[i] = strconv.FormatUint(uint64(table), 10)
	}
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (e HiddenError, err error) {
		return e, row.Scan(&e.Table, &e.Policies, &e.Role, &e.Owner)
	}, "read the row-level security", `
		SELECT pg_catalog.format('%I.%I', n.nspname, c.relname),
			ARRAY(SELECT polname::text FROM pg_catalog.pg_policy WHERE polrelid = c.oid ORDER BY polname),
			current_user::text, pg_catalog.pg_has_role(c.relowner, 'USAGE')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = ANY ($1::oid[]) AND pg_catalog.row_security_active(c.oid) ORDER BY 1 LIMIT 1`, "{"+strings.Join(oids, ",")+"}")
}
