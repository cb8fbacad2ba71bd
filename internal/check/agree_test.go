package check

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// For each condition of the source, check fails if and only if run does not start.
func TestRunAndCheckAgree(t *testing.T) {
	t.Parallel()
	const parts = `ALTER TABLE outbox RENAME TO whole; CREATE TABLE outbox (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id);
		CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('80000000-0000-0000-0000-000000000000');
		%s PARTITION OF outbox DEFAULT; DROP PUBLICATION pub; CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = %t)`
	viaRoot := fmt.Sprintf(parts, "CREATE TABLE outbox_1", true)
	split := fmt.Sprintf(parts, "CREATE TABLE outbox_1", false)
	slot := "SELECT pg_drop_replication_slot('$SLOT')"
	cases := map[string]struct {
		sql    string
		tables string // outbox.tables; empty: outbox
		since  int    // major version
		fails  bool
		often  bool // in every run: one case for each rule
	}{
		"nothing":                   {often: true},
		"row filter":                {sql: "ALTER PUBLICATION pub SET TABLE outbox WHERE (type <> 'x')", since: 15},
		"neighbour":                 {sql: "CREATE TABLE hb (id int PRIMARY KEY); ALTER PUBLICATION pub ADD TABLE hb"},
		"look-alike":                {sql: "CREATE TABLE archive (LIKE outbox); ALTER PUBLICATION pub ADD TABLE archive", often: true},
		"all tables":                {sql: "DROP PUBLICATION pub; CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert')"},
		"updates published":         {sql: "ALTER PUBLICATION pub SET (publish = 'insert, update')"},
		"no publication":            {sql: "DROP PUBLICATION pub", fails: true},
		"inserts not published":     {sql: "ALTER PUBLICATION pub SET (publish = 'delete')", fails: true, often: true},
		"publication without table": {sql: "ALTER PUBLICATION pub DROP TABLE outbox", fails: true},
		"publication of another":    {sql: "CREATE TABLE other (id int); ALTER PUBLICATION pub SET TABLE other", fails: true},
		"table dropped":             {sql: "DROP TABLE outbox", fails: true, often: true},
		"table renamed":             {sql: "ALTER TABLE outbox RENAME TO outbox_old", fails: true},
		"table replaced":            {sql: "ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old)", fails: true, often: true},
		"table in another schema":   {sql: "CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app"},
		"view":                      {sql: "CREATE VIEW v AS SELECT * FROM outbox", tables: "v", fails: true},
		"invalid name":              {tables: "a.b.c.d", fails: true, often: true},
		"unlogged":                  {sql: "CREATE UNLOGGED TABLE u (LIKE outbox)", tables: "u", fails: true},
		"second table not there":    {tables: "outbox,nowhere", fails: true},
		"partitions, via root":      {sql: viaRoot},
		"partitions":                {sql: split},
		"partition not published":   {sql: split + "; ALTER PUBLICATION pub SET TABLE outbox_0", fails: true, often: true},
		"partitions one by one":     {sql: split + "; ALTER PUBLICATION pub SET TABLE outbox_0, outbox_1"},
		"partition of a root":       {sql: viaRoot, tables: "outbox_0", fails: true},
		"partition alone":           {sql: split, tables: "outbox_0", often: true},
		"unlogged partition":        {sql: fmt.Sprintf(parts, "CREATE UNLOGGED TABLE outbox_1", true), fails: true},
		"foreign partition":         {sql: "CREATE FOREIGN DATA WRAPPER $SLOT; CREATE SERVER $SLOT FOREIGN DATA WRAPPER $SLOT; ALTER TABLE outbox RENAME TO whole; CREATE TABLE outbox (LIKE whole INCLUDING DEFAULTS) PARTITION BY RANGE (id); CREATE FOREIGN TABLE outbox_0 PARTITION OF outbox DEFAULT SERVER $SLOT; DROP PUBLICATION pub; CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)", fails: true},
		"without partitions":        {sql: "ALTER TABLE outbox RENAME TO whole; CREATE TABLE outbox (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id); ALTER PUBLICATION pub SET TABLE outbox"},
		"child":                     {sql: "CREATE TABLE child () INHERITS (outbox)", fails: true, often: true},
		"published child":           {sql: "CREATE TABLE child () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE child"},
		"column list":               {sql: "ALTER PUBLICATION pub SET TABLE outbox (id, aggregatetype)", since: 15, fails: true},
		"column renamed":            {sql: "ALTER TABLE outbox RENAME payload TO body", fails: true, often: true},
		"child with other columns":  {sql: "CREATE TABLE child () INHERITS (outbox); ALTER TABLE outbox ALTER payload DROP NOT NULL; ALTER TABLE child ADD more text; ALTER PUBLICATION pub ADD TABLE child"},
		"generated payload":         {sql: "ALTER TABLE outbox DROP payload; ALTER TABLE outbox ADD payload jsonb GENERATED ALWAYS AS ('{}') STORED", fails: true},
		"no slot":                   {sql: slot, fails: true},
		"another plugin":            {sql: slot + "; SELECT pg_create_logical_replication_slot('$SLOT', 'test_decoding')", fails: true, often: true},
		"physical slot":             {sql: slot + "; SELECT pg_create_physical_replication_slot('$SLOT')", fails: true},
		"two-phase slot":            {sql: slot + "; SELECT pg_create_logical_replication_slot('$SLOT', 'pgoutput', false, true)", fails: true},
		"no REPLICATION":            {sql: "ALTER ROLE cdc_$SLOT NOREPLICATION", fails: true, often: true},
	}
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		fake := kafkatest.Fake(t, kfake.NumBrokers(1)).Cluster
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if !tc.often {
					need.FullRun(t, "a relay and a database for one more case of a rule")
				}
				if srv.Install().Major < tc.since {
					return
				}
				r := whole(t, srv, fake)
				for sql := range strings.SplitSeq(strings.ReplaceAll(tc.sql, "$SLOT", r.db.Name), "; ") {
					r.db.Exec(t, sql)
				}
				if tc.tables != "" {
					r.set("outbox.tables", tc.tables)
				}
				var failed []Condition
				for _, c := range Run(t.Context(), r.config(t)) {
					if c.State == Failed {
						failed = append(failed, c)
					}
				}
				err := start(t, r.config(t).Relay, tc.fails)
				if (len(failed) > 0) != tc.fails || (err != nil) != tc.fails {
					t.Errorf("check fails: %+v\nrun: exit code %d, %v\nwant failures: %t", failed, fault.ExitCode(err), err, tc.fails)
				}
			})
		}
	})
}

// start runs a relay until it streams or, if it fails, until it ends: for a column that is missing, it first delivers what was
// committed before. It returns the error of the relay.
func start(t *testing.T, cfg relay.Config, fails bool) error {
	t.Helper()
	r, err := relay.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	wait.For(t, "the relay to stream, or to end", func() bool {
		return !fails && r.Stat().State == relay.Streaming || len(ended) > 0
	}, func() any { return r.Stat().State })
	cancel()
	return <-ended
}
