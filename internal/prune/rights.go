package prune

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// verifyRows returns a [*catalog.HiddenError] if the role would not see every row that it deletes.
func (p *pruner) verifyRows(ctx context.Context, r *relation) error {
	var oids []uint32
	for _, leaf := range r.leaves {
		oids = append(oids, leaf.OID)
	}
	return catalog.VerifyRows(ctx, p.work.PgConn(), oids...)
}

// checkRights returns a [*catalog.RightError] if the role could not remove rows of r. Otherwise Postgres would reject it only
// after the wait for the relay, and a dry run not at all.
func (p *pruner) checkRights(ctx context.Context, r *relation) error {
	if err := catalog.VerifyMessages(ctx, p.work.PgConn()); err != nil { // for the mark
		return err
	}
	for _, partition := range r.partitions {
		owns, err := p.owns(ctx, partition.OID)
		if err != nil {
			return fmt.Errorf("look up the owner of %s: %w", partition.Name, err)
		}
		if !owns {
			return p.ownerError("does not own partition %s, and only the owner can drop it", partition.Name)
		}
	}
	for _, leaf := range r.leaves {
		if err := p.checkDelete(ctx, r, leaf); err != nil {
			return err
		}
	}
	return nil
}

// owns reports whether the role may do what the owner of a table may. It needs no right on a table that does not exist any more: another prune
// may have dropped it.
func (p *pruner) owns(ctx context.Context, table uint32) (bool, error) {
	return queryOne[bool](ctx, p.work, `SELECT COALESCE((SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1), true)`, table)
}

// An OwnerError says that prune has to run as the owner of the table, because no other role can be granted the right to drop and to
// create its partitions. It wraps a [*catalog.RightError].
type OwnerError struct{ right catalog.RightError }

// Error returns what the role lacks, and that the owner does not.
func (e *OwnerError) Error() string { return e.right.Error() }

// Unwrap returns the RightError.
func (e *OwnerError) Unwrap() error { return &e.right }

// ownerError returns the error for a role that may not do what the owner may.
func (p *pruner) ownerError(lacks string, args ...any) error {
	what := fmt.Sprintf("role %q "+lacks, append([]any{p.work.Config().User}, args...)...)
	return &OwnerError{catalog.RightError{What: what + `: run prune as the owner of the table: --dsn "$OWNER_DSN"`}}
}

// explainDenied returns err, or an [*OwnerError] if the role lacks a privilege that the owner of r has.
func (p *pruner) explainDenied(ctx context.Context, r *relation, err error) error {
	if code, ok := errors.AsType[*pgconn.PgError](err); !ok || code.Code != insufficientPrivilege {
		return err
	}
	if owns, failed := p.owns(ctx, r.oid); failed != nil || owns {
		return err
	}
	return p.ownerError("lacks a privilege: %v", err)
}

// checkDelete checks the rights that deleting rows of one table of r needs.
func (p *pruner) checkDelete(ctx context.Context, r *relation, table part) error {
	rows, _ := p.work.Query(ctx, `SELECT r FROM pg_catalog.unnest(ARRAY['SELECT', 'DELETE']) r WHERE NOT pg_catalog.has_table_privilege($1::oid, r)`, table.OID)
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look up the rights on %s: %w", table.Name, err)
	}
	if len(missing) == 0 {
		return nil
	}
	lacking := strings.Join(missing, ", ")
	user := p.work.Config().User
	if r.ends != "" {
		return p.ownerError("lacks %s on %s, and prune drops partitions", lacking, table.Name)
	}
	return &catalog.RightError{What: fmt.Sprintf("role %q lacks %s on %s: use the operator's role, or if this is it: GRANT %[2]s ON %[3]s TO %[4]s", user, lacking, table.Name, replication.QuoteIdent(user))}
}

// checkSchema returns a [*catalog.RightError] if the role may not use the schema of r, which creating partitions needs too.
func (p *pruner) checkSchema(ctx context.Context, r *relation) error {
	schema, err := queryOne[string](ctx, p.work, `
		SELECT COALESCE((SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = $1 AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')), '')`, r.oid)
	switch user := p.work.Config().User; {
	case err != nil:
		return fmt.Errorf("look up the rights on the schema: %w", err)
	case schema != "":
		return &catalog.RightError{What: fmt.Sprintf("role %q lacks USAGE on schema %s: use the operator's role, or if this is it: GRANT USAGE ON SCHEMA %[2]s TO %[3]s", user, schema, replication.QuoteIdent(user))}
	}
	return nil
}
