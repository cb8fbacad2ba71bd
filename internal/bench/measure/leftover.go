package measure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
)

// A Leftover is an object that a killed bench did not drop.
type Leftover struct {
	Object string // such as "slot outbox_cdc_bench_abc_1"
	Drop   string // the statement or command that drops it
}

// FindLeftovers returns the objects of killed benches. It leaves out those of benches that are running, as far
// as the role may see them. It changes nothing.
func FindLeftovers(ctx context.Context, servers Servers) ([]Leftover, error) {
	pool, err := servers.newPool(ctx, ClientID)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	rows, err := pool.Query(ctx, leftoversSQL, objectPrefix)
	if err != nil {
		return nil, postgresError("look for leftovers", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Leftover])
	if err != nil {
		return nil, postgresError("look for leftovers", err)
	}
	rows, err = pool.Query(ctx, `SELECT application_name FROM pg_stat_activity WHERE starts_with(application_name, $1)`, objectPrefix)
	if err != nil {
		return nil, postgresError("look for running benches", err)
	}
	running, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, postgresError("look for running benches", err)
	}
	destinations, err := leftDestinations(ctx, servers.Broker, running)
	return append(found, destinations...), err
}

// Slots come first, because they retain WAL.
const leftoversSQL = `
WITH left_behind AS (
	SELECT 1 AS rank, 'slot' AS kind, slot_name::text AS name, format('SELECT pg_drop_replication_slot(%L)', slot_name) AS statement
	FROM pg_replication_slots
	UNION ALL SELECT 2, 'publication', pubname::text, format('DROP PUBLICATION %I', pubname) FROM pg_publication
	UNION ALL SELECT 3, 'schema', nspname::text, format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
)
SELECT kind || ' ' || name, statement FROM left_behind
WHERE starts_with(name, $1)
	AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE starts_with(application_name, $1) AND starts_with(name, application_name))
ORDER BY rank, name`

// leftDestinations returns the destinations of benches that are not in running. running has the names of their schemas.
func leftDestinations(ctx context.Context, b Broker, running []string) ([]Leftover, error) {
	names, err := b.List(ctx)
	if err != nil {
		return nil, err
	}
	var prefixes []string
	for _, name := range names {
		_, rest, ours := strings.Cut(name, TopicPrefix)
		end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if !ours || end < 1 || slices.Contains(running, objectPrefix+rest[:end]) {
			continue
		}
		if prefix := TopicPrefix + rest[:end]; !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	var found []Leftover
	for _, prefix := range prefixes {
		found = append(found, Leftover{fmt.Sprintf("destinations %s*", prefix), b.DropCommand(prefix)})
	}
	return found, nil
}
