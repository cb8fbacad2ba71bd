package catalog

import (
	"context"
	"fmt"

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
