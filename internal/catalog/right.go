package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A RightError names a right that the role lacks, which Postgres itself would report late or not at all. It is a
// [replication.ErrAccess].
type RightError struct {
	What string // what the role lacks, and how to grant it
}

// Error contains What.
func (e *RightError) Error() string { return fmt.Sprintf("%v: %s", replication.ErrAccess, e.What) }

// Unwrap returns [replication.ErrAccess].
func (e *RightError) Unwrap() error { return replication.ErrAccess }

// MayPublish returns a [*RightError] if the role may not create a publication of tables, which exist.
func (r *Reader) MayPublish(ctx context.Context, tables []string) error {
	role, err := r.Role(ctx)
	if err != nil {
		return err
	}
	for _, name := range tables {
		switch t, err := r.Table(ctx, name, nil); {
		case err != nil:
			return err
		case !t.Owner:
			return &RightError{fmt.Sprintf("run creates the publication, but role %q does not own table %s", role.Name, t.SQLName())}
		}
	}
	if !role.Create {
		return &RightError{fmt.Sprintf("run creates the publication, but role %q lacks CREATE on the database", role.Name)}
	}
	return nil
}

// VerifyMessages returns a [*RightError] if the role may not write logical messages: a right that only a superuser can take away and give.
func VerifyMessages(ctx context.Context, conn *pgconn.PgConn) error {
	role, err := readRole(ctx, conn, "")
	if err == nil && !role.EmitsMessages {
		err = &RightError{fmt.Sprintf("role %q may not write logical messages: use the operator's role, or if this is it, as a superuser: %s", role.Name, role.GrantMessages())}
	}
	return err
}

// A ReadError says that the role may not read a table whose rows a copy or a refill sends. It is a [replication.ErrAccess].
type ReadError struct{ table, role, grant string }

// Error names the table and the statement that grants the right.
func (e *ReadError) Error() string {
	return fmt.Sprintf("%v: role %q may not read table %s; use a role that may read the table, or if this is the right one: %s", replication.ErrAccess, e.role, e.table, e.grant)
}

// Unwrap returns [replication.ErrAccess].
func (e *ReadError) Unwrap() error { return replication.ErrAccess }

// verifyRead returns a [*ReadError] if the role may read no column of one of tables.
func verifyRead(ctx context.Context, conn *pgconn.PgConn, tables []Table) error {
	for _, t := range tables {
		may, err := queryOne(ctx, conn, pgx.RowTo[bool], "read the rights on table "+t.SQLName(), `
			SELECT pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
			FROM pg_catalog.pg_class c WHERE c.oid = $1::text::oid`, fmt.Sprint(t.OID))
		if err != nil {
			return err
		}
		if may != nil && !*may {
			role := conn.ParameterStatus("session_authorization")
			return &ReadError{t.SQLName(), role, t.GrantSelect(role)}
		}
	}
	return nil
}

// GrantSelect returns the SQL that lets a role read t. Postgres asks for USAGE of the schema first, which every role has in public unless
// somebody has revoked it.
func (t Table) GrantSelect(role string) string {
	role = replication.QuoteIdent(role)
	grant := "GRANT SELECT ON " + t.SQLName() + " TO " + role
	if t.Schema == "public" {
		return grant
	}
	return grantUsage(t.Schema, role) + "; " + grant
}

// grantUsage returns the SQL that lets a role, as written in SQL, use a schema.
func grantUsage(schema, role string) string {
	return "GRANT USAGE ON SCHEMA " + replication.QuoteIdent(schema) + " TO " + role
}
