package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// limited returns server settings for which the check has no warning.
func limited() map[string]string { return map[string]string{"max_slot_wal_keep_size": "10GB"} }

// A rig is a correct set-up: a table, a role with the minimal rights, a publication, a slot and topics.
type rig struct {
	db        *pgtest.DB
	kafka     *kafkatest.Cluster
	role      string
	topic     string
	positions string
	more      []config.Setting
	change    func(*Config)
	streams   *replication.Stream // of a program that is no relay; nil: none
}

// emitting returns a GRANT or REVOKE of the right to write logical messages.
func emitting(t *testing.T, db *pgtest.DB, grant, to string) string {
	t.Helper()
	return pgtest.QueryRow[string](t, db, `SELECT $1 || ' EXECUTE ON FUNCTION ' || string_agg(oid::regprocedure::text, ', ') || ' ' || $2
		FROM pg_proc WHERE proname = 'pg_logical_emit_message'`, grant, to)
}

func newRig(t *testing.T, srv *pgserver.Server, kafka *kafkatest.Cluster) *rig {
	t.Helper()
	db := pgtest.DatabaseOn(t, srv)
	r := &rig{db: db, kafka: kafka, role: "cdc_" + db.Name, change: func(*Config) {}}
	db.Exec(t, `
		CREATE TABLE outbox (
			id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text, type text NOT NULL, payload jsonb, at text,
			position bigint NOT NULL GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id());
		CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert');
		CREATE ROLE `+r.role+` LOGIN REPLICATION;
		`+emitting(t, db, "REVOKE", "FROM PUBLIC")+`;
		`+emitting(t, db, "GRANT", "TO "+r.role)+`;
		GRANT SELECT ON outbox TO `+r.role+`;
		INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'created', '{"n": 1}')`)
	return r
}

// whole is newRig with slot and topics.
func whole(t *testing.T, srv *pgserver.Server, kafka *kafkatest.Cluster) *rig {
	t.Helper()
	r := newRig(t, srv, kafka)
	r.topic = kafka.Topic(t, 2, nil)
	r.positions = kafka.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	r.makeSlot(t, "pgoutput")
	return r
}

// beside is whole with a broker in the process, for a test that also runs relays.
func beside(t *testing.T) (*rig, *pgserver.Server, *kafkatest.FakeCluster) {
	t.Helper()
	srv, fake := pgtest.StartOther(t, pgserver.Config{Settings: limited()}), kafkatest.Fake(t)
	return whole(t, srv, fake.Cluster), srv, fake
}

func (r *rig) makeSlot(t *testing.T, plugin string) {
	t.Helper()
	r.db.Exec(t, fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', '%s')", r.db.Name, plugin))
}

// set adds a configuration key of the relay.
func (r *rig) set(key, value string) { r.more = append(r.more, config.Setting{Key: key, Value: value}) }

func (r *rig) config(t *testing.T) Config {
	t.Helper()
	settings := []config.Setting{
		{Key: "source.dsn", Value: strings.Replace(r.db.DSN, "//postgres@", "//"+r.role+"@", 1)},
		{Key: "source.publication", Value: "pub"},
		{Key: "source.slot", Value: r.db.Name},
		{Key: "source.create", Value: "none"},
		{Key: "sink.kafka.brokers", Value: strings.Join(r.kafka.Addrs, ",")},
		{Key: "outbox.topic", Value: r.topic},
		{Key: "position_topic", Value: r.positions},
	}
	cfg, err := config.Load(config.Sources{Flags: append(settings, r.more...)})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Relay: relay, Arguments: "-c outbox-cdc.yaml", Timeout: time.Minute}
	r.change(&c)
	return c
}

// unmet returns the unmet conditions by title. It leaves out durability, which one broker cannot meet.
func (r *rig) unmet(t *testing.T) map[string]Condition {
	t.Helper()
	unmet := make(map[string]Condition)
	for _, c := range Run(t.Context(), r.config(t)) {
		if !slices.ContainsFunc(definitions(kafka.Config{}), func(d definition) bool {
			return d.group == c.Group && d.name == c.Name && (d.object != "") == (c.Object != "")
		}) {
			t.Errorf("not defined: %+v", c)
		}
		if c.State != Met && c.Name != "durability" {
			unmet[r.title(c)] = c
		}
	}
	return unmet
}

// title returns the title of a condition, with the same names in every run.
func (r *rig) title(c Condition) string {
	return strings.NewReplacer(r.topic, "TOPIC", r.positions, "POSITIONS").Replace(c.Title())
}

// mend applies the fix of a condition: it runs statements as the superuser, and commands with Kafka's tools.
func (r *rig) mend(t *testing.T, c Condition) {
	t.Helper()
	fix := strings.TrimPrefix(c.Fix, useRelayRole)
	fix, _, _ = strings.Cut(fix, "; or ")
	if strings.HasPrefix(fix, "kafka-") {
		kafkatest.RunCommand(t, fix)
		return
	}
	for _, as := range []string{asSuperuser + r.db.Name + ": ", "as the owner of the database: "} {
		fix = strings.TrimPrefix(fix, as)
	}
	fix, _, _ = strings.Cut(fix, ", and restart")
	fix, _, _ = strings.Cut(fix, ", then")
	fix, _, _ = strings.Cut(fix, ", send them")
	r.run(t, strings.Split(fix, "; ")...)
}

// run runs statements as the superuser, one by one on the same connection.
func (r *rig) run(t *testing.T, sql ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range sql {
		if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// becomesMet waits until the condition is met, since a server needs a moment to apply a setting.
func (r *rig) becomesMet(t *testing.T, title string) {
	t.Helper()
	var unmet Condition
	wait.For(t, "the condition to be met after the fix", func() bool {
		c, ok := r.unmet(t)[title]
		unmet = c
		return !ok
	}, func() any { return fmt.Sprintf("%+v", unmet) })
}
