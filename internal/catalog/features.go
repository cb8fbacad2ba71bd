package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Features returns those of features that the server has. A feature is a kind and a name: "setting x", "role x", "extension x"
// (installed or not), "schema x" or "function x" (of pg_catalog).
func (r *Reader) Features(ctx context.Context, features []string) ([]string, error) {
	array, err := pgtype.NewMap().Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, features, nil)
	if err != nil {
		return nil, err
	}
	return read(ctx, r, func(conn executor) ([]string, error) {
		return query(ctx, conn, pgx.RowTo[string], "find out who runs the server", `
			SELECT kind || ' ' || name
			FROM (SELECT pg_catalog.split_part(feature, ' ', 1) AS kind, pg_catalog.split_part(feature, ' ', 2) AS name
				FROM pg_catalog.unnest($1::text[]) AS feature) m
			WHERE CASE kind
				WHEN 'setting' THEN pg_catalog.current_setting(name, true) IS NOT NULL
				WHEN 'role' THEN EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = m.name)
				WHEN 'extension' THEN EXISTS (SELECT FROM pg_catalog.pg_available_extensions e WHERE e.name = m.name)
				WHEN 'schema' THEN pg_catalog.to_regnamespace(name) IS NOT NULL
				WHEN 'function' THEN pg_catalog.to_regproc('pg_catalog.' || name) IS NOT NULL END`, string(array))
	})
}
