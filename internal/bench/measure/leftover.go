package measure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
)

// A Leftover is an object that a killed bench did not drop.
type Leftover struct {
	Object string // such as "slot outbox_cdc_bench_abc_1"
	Drop   string // the statement or command that drops it
}

// FindLeftovers returns the objects of killed benches. It leaves out those of benches that are running, as far
// as the role may see them. It changes nothing.
func FindLeftovers(ctx context.Context, servers Servers) ([]Leftover, error) {
	pool, err := servers.newPool(ctx, clientID)
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
	topics, err := leftTopics(ctx, servers, running)
	return append(found, topics...), err
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

// leftTopics returns the topics of benches that are not in running. running has the names of their schemas.
func leftTopics(ctx context.Context, servers Servers, running []string) ([]Leftover, error) {
	client, err := servers.newClient(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, kafkaError("look for leftovers", err)
	}
	var prefixes []string
	for _, topic := range topics.Names() {
		prefix, _, _ := strings.Cut(topic, ".")
		suffix, ours := strings.CutPrefix(prefix, topicPrefix)
		if ours && !slices.Contains(running, objectPrefix+suffix) && !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	var found []Leftover
	for _, prefix := range prefixes {
		found = append(found, Leftover{fmt.Sprintf("topics %s.*", prefix), deleteTopics(prefix + ".")})
	}
	return found, nil
}

// deleteTopics returns a command of Kafka's scripts. Its --topic is a regular expression.
func deleteTopics(prefix string) string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server … --delete --topic '%s.*'", strings.ReplaceAll(prefix, ".", `\.`))
}
