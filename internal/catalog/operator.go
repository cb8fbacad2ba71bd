package catalog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// grantOperator grants cfg.Operator the privileges on the outbox tables, and their children by inheritance, that an operator's commands
// need: USAGE of their schema, SELECT for audit, replay and recover, DELETE for prune, and SELECT on the sequence of the insertion order, with
// which recover can tell that an empty table never had a row. A Warning of the role's Step names what its owner cannot grant.
func (s *setup) grantOperator(ctx context.Context, outboxes []Outbox) ([]Step, error) {
	name := s.cfg.Operator
	role, err := readRole(ctx, s.conn, name)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return nil, fmt.Errorf("%w: there is no role %q to be the operator: CREATE ROLE %s LOGIN REPLICATION PASSWORD '…'", replication.ErrConfig, name, replication.QuoteIdent(name))
	}
	steps := []Step{{Object: fmt.Sprintf("role %q", name), Action: actionExists, Warning: role.operatorWarning()}}
	for _, o := range outboxes {
		for i, part := range o.Parts {
			if i > 0 && len(part.ancestors) > 0 { // commands read and delete rows of a partition through the table above it
				continue
			}
			step, err := s.grantTable(ctx, part)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
	}
	return steps, nil
}

// operatorWarning names what an operator's commands need that only a superuser can grant, "" if the role has it.
func (r *RoleDetails) operatorWarning() string {
	switch {
	case !r.Replication:
		return "it lacks REPLICATION, which recover and tail need; as a superuser: ALTER ROLE " + replication.QuoteIdent(r.Name) +
			" REPLICATION; on a managed server, check with its --dsn prints the statement"
	case !r.EmitsMessages:
		return "it may not execute pg_logical_emit_message, which prune and recover need; as a superuser: " + r.GrantMessages()
	}
	return ""
}

// grantTable grants the operator the privileges on one table.
func (s *setup) grantTable(ctx context.Context, table Part) (Step, error) {
	role, on := replication.QuoteIdent(s.cfg.Operator), table.SQLName()
	doing := fmt.Sprintf("grant %q privileges on %s", s.cfg.Operator, on)
	oid := strconv.FormatUint(uint64(table.OID), 10)
	owns, err := queryOne(ctx, s.conn, pgx.RowTo[bool], doing,
		`SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1::oid`, oid)
	switch {
	case err != nil:
		return Step{}, err
	case owns == nil || !*owns: // Postgres would only warn
		return Step{}, &RightError{doing + ": only the owner of the table can grant them"}
	}
	sequence, err := queryOne(ctx, s.conn, pgx.RowTo[string], doing, `
		SELECT pg_catalog.pg_get_serial_sequence($1, attname) FROM pg_catalog.pg_attribute
		WHERE attrelid = $2::oid AND attname = $3 AND NOT attisdropped AND pg_catalog.pg_get_serial_sequence($1, attname) IS NOT NULL`,
		on, oid, orderColumn)
	if err != nil {
		return Step{}, err
	}
	usage, err := queryOne(ctx, s.conn, pgx.RowTo[bool], doing, `
		SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE WITH GRANT OPTION') FROM pg_catalog.pg_namespace n
		WHERE n.nspname = $1 AND NOT pg_catalog.has_schema_privilege($2::name, n.oid, 'USAGE')`, table.Schema, s.cfg.Operator)
	if err != nil {
		return Step{}, err
	}
	grant, granted := "GRANT SELECT, DELETE ON "+on+" TO "+role, "SELECT, DELETE on "+on
	useSchema := grantUsage(table.Schema, role)
	if usage != nil && *usage {
		grant += "; " + useSchema
		granted += ", USAGE on schema " + replication.QuoteIdent(table.Schema)
	}
	if sequence != nil {
		grant += "; GRANT SELECT ON SEQUENCE " + *sequence + " TO " + role
		granted += ", SELECT on sequence " + *sequence
	}
	if err := s.exec(ctx, doing, grant); err != nil {
		return Step{}, err
	}
	step := Step{Object: granted, Action: actionGranted}
	switch {
	case usage != nil && !*usage: // Postgres would only warn
		step.Warning = "the operator may not use the schema yet; as its owner: " + useSchema
	case table.Kind == partitionedTable:
		step.Warning = "the operator may not prune this table: prune drops partitions, which only their owner can do; run prune as the owner"
	}
	return step, nil
}
