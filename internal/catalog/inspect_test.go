package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestInspectTables(t *testing.T) {
	t.Parallel()
	column := func(name string, oid uint32, typeName string, notNull bool) Column {
		c := Column{Name: name, TypeOID: oid, TypeModifier: -1, TypeName: typeName, notNull: notNull}
		if typeName == "character varying(40)" {
			c.TypeModifier = 40 + 4
		}
		return c
	}
	id, payload := column("id", 23, "integer", true), column("payload", 3802, "jsonb", false)
	for name, tc := range map[string]struct {
		sql   string
		since int // major version
		want  []Table
	}{
		"dropped and generated columns": {
			sql: `CREATE TABLE outbox (gone int, id int NOT NULL, twice int GENERATED ALWAYS AS (id * 2) STORED, key varchar(40), payload jsonb);
				ALTER TABLE outbox DROP COLUMN gone; CREATE PUBLICATION pub FOR TABLE outbox`,
			want: []Table{{Schema: "public", Name: "outbox", Columns: []Column{id, column("key", 1043, "character varying(40)", false), payload}}},
		},
		"generated column that is published": {
			since: 18,
			sql: `CREATE TABLE outbox (id int NOT NULL, twice int GENERATED ALWAYS AS (id * 2) STORED);
				CREATE PUBLICATION pub FOR TABLE outbox WITH (publish_generated_columns = stored)`,
			want: []Table{{Schema: "public", Name: "outbox", Columns: []Column{id, column("twice", 23, "integer", false)}}},
		},
		"column list and row filter": {
			since: 15,
			sql: `CREATE TABLE outbox (payload jsonb, secret text, id int NOT NULL);
				CREATE PUBLICATION pub FOR TABLE outbox (id, payload) WHERE (id > 5)`,
			want: []Table{{Schema: "public", Name: "outbox", Columns: []Column{payload, id}, RowFilter: "(id > 5)", Republish: republish("pub", `"public"."outbox"`)}},
		},
		"schema": {
			since: 15,
			sql: `CREATE SCHEMA app; CREATE TABLE app.a (id int NOT NULL); CREATE TABLE app.b (payload jsonb);
				CREATE PUBLICATION pub FOR TABLES IN SCHEMA app`,
			want: []Table{{Schema: "app", Name: "a", Columns: []Column{id}}, {Schema: "app", Name: "b", Columns: []Column{payload}}},
		},
		"via root": {
			sql: `CREATE TABLE outbox (id int NOT NULL, payload jsonb) PARTITION BY RANGE (id);
				CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (1) TO (9);
				CREATE PUBLICATION pub FOR TABLE outbox WITH (publish_via_partition_root = true)`,
			want: []Table{{Schema: "public", Name: "outbox", Partitioned: true, Columns: []Column{id, payload}}},
		},
		"as partitions": {
			sql: `CREATE TABLE outbox (id int NOT NULL, payload jsonb) PARTITION BY RANGE (id);
				CREATE TABLE p1 (payload jsonb, id int NOT NULL); ALTER TABLE outbox ATTACH PARTITION p1 FOR VALUES FROM (1) TO (9);
				CREATE PUBLICATION pub FOR TABLE outbox`,
			want: []Table{{Schema: "public", Name: "p1", partition: true, root: `"public"."outbox"`, Columns: []Column{payload, id}}},
		},
		"no table": {sql: "CREATE PUBLICATION pub"},
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
				if srv.Install().Major < tc.since {
					return
				}
				db := pgtest.DatabaseOn(t, srv)
				db.Exec(t, tc.sql)
				state, err := Inspect(t.Context(), db.Config(t), "pub", "no_slot", nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, state.Publication.Tables, cmp.AllowUnexported(Table{}, Column{}), cmpopts.IgnoreFields(Table{}, "OID", "Unsent")); diff != "" {
					t.Errorf("tables (-want +got):\n%s", diff)
				}
				for _, table := range state.Publication.Tables {
					if oid := pgtest.QueryRow[uint32](t, db, "SELECT to_regclass($1)::oid", table.Schema+"."+table.Name); table.OID != oid {
						t.Errorf("OID of %s is %d, want %d", table.Name, table.OID, oid)
					}
				}
			})
		})
	}
}

func TestInspectServer(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "CREATE PUBLICATION other")
		began := time.Now()
		got, err := Inspect(t.Context(), db.Config(t), "pub", "no_slot", nil)
		if err != nil {
			t.Fatal(err)
		}
		want := &State{
			ServerVersion: pgtest.QueryRow[int](t, db, "SELECT current_setting('server_version_num')::int"),
			SystemID:      pgtest.QueryRow[string](t, db, "SELECT system_identifier::text FROM pg_control_system()"),
			Database:      db.Name, WALLevel: "logical", Encoding: "UTF8", MaxSlotWALKeepSize: -1, StandbySlots: []StandbySlot{}, PublicationName: "pub", SlotName: "no_slot",
			OtherPublications: []string{"other"},
		}
		if got.WALEnd == 0 || got.ReadAt.Before(began) || got.ReadAt.After(time.Now()) {
			t.Errorf("WAL ends at %s, read at %s", got.WALEnd, got.ReadAt)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Publication{}, Slot{}), cmpopts.IgnoreFields(State{}, "WALEnd", "ReadAt", "Oldest")); diff != "" {
			t.Errorf("catalog (-want +got):\n%s", diff)
		}
	})
}

// Transactions larger than logical_decoding_work_mem are counted, on every version.
func TestInspectDecoding(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		slot := "decoding_" + db.Name
		inspect := func() *Slot {
			t.Helper()
			o := ObserveSlot(db.Config(t), slot)
			defer o.Close(t.Context())
			state, err := o.InspectSlot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return state.Slot
		}
		db.Exec(t, "CREATE TABLE outbox (payload text); CREATE PUBLICATION pub FOR TABLE outbox")
		db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
		if s := inspect(); s.Decoding != (DecodingStat{}) || s.SyncSkipReason != "" || s.Synced {
			t.Errorf("a new slot: %+v", s)
		}
		db.Exec(t, "INSERT INTO outbox SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
		conn := db.Conn(t)
		for _, sql := range []string{
			"SET logical_decoding_work_mem = '64kB'",
			"SELECT count(*) FROM pg_logical_slot_get_binary_changes('" + slot + "', NULL, NULL, 'proto_version', '1', 'publication_names', 'pub')",
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close(t.Context())
		wait.For(t, "the server to count the transaction", func() bool {
			d := inspect().Decoding
			return d.SpilledTransactions == 1 && d.SpilledBytes > 500_000 && d.StreamedTransactions == 0
		})
	})
}

func TestVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*State)
		want   error
		text   string
	}{
		"fine":                 {change: func(*State) {}},
		"slot in use":          {change: func(c *State) { c.Slot.Active = true }},
		"slot running out":     {change: func(c *State) { c.Slot.WALStatus = "unreserved" }},
		"standby":              {change: func(c *State) { c.InRecovery = true }},
		"left on a standby":    {change: func(c *State) { c.InRecovery, c.Slot.Failover = true, true }, want: replication.ErrUnreachable, text: "pg_drop_replication_slot('slot')"},
		"version":              {change: func(c *State) { c.ServerVersion = 130022 }, want: replication.ErrConfig, text: "13.22"},
		"wal_level":            {change: func(c *State) { c.WALLevel = "replica" }, want: replication.ErrConfig, text: "wal_level"},
		"encoding":             {change: func(c *State) { c.Encoding = "SQL_ASCII" }, want: replication.ErrConfig, text: "SQL_ASCII"},
		"old standby":          {change: func(c *State) { c.InRecovery, c.ServerVersion = true, 150018 }, want: replication.ErrUnreachable, text: "standby"},
		"no publication":       {change: func(c *State) { c.Publication = nil }, want: replication.ErrPublication, text: `"pub"`},
		"neither":              {change: func(c *State) { c.Publication, c.Slot = nil, nil }, want: replication.ErrPublication, text: "setup"},
		"no inserts":           {change: func(c *State) { c.Publication.Insert = false }, want: replication.ErrPublication, text: "insert"},
		"no table":             {change: func(c *State) { c.Publication.Tables = nil }, want: replication.ErrPublication, text: "no table"},
		"no slot":              {change: func(c *State) { c.Slot = nil }, want: replication.ErrSlotMissing, text: "outbox-cdc recover"},
		"physical slot":        {change: func(c *State) { c.Slot.Plugin = "" }, want: replication.ErrConfig, text: "physical"},
		"plugin":               {change: func(c *State) { c.Slot.Plugin = "wal2json" }, want: replication.ErrConfig, text: "wal2json"},
		"another database":     {change: func(c *State) { c.Slot.Database = "other" }, want: replication.ErrConfig, text: "other"},
		"the wrong database":   {change: func(c *State) { c.Slot.Database, c.Publication = "other", nil }, want: replication.ErrConfig, text: "source.dsn leads to"},
		"lost":                 {change: func(c *State) { c.Slot.WALStatus = "lost" }, want: replication.ErrSlotLost, text: "0/20"},
		"invalidated":          {change: func(c *State) { c.Slot.InvalidationReason = "idle_timeout" }, want: replication.ErrSlotLost, text: "idle_timeout"},
		"two-phase slot":       {change: func(c *State) { c.Slot.TwoPhase = true }, want: replication.ErrConfig, text: "two_phase"},
		"temporary slot":       {change: func(c *State) { c.Slot.Temporary = true }, want: replication.ErrConfig, text: "temporary"},
		"copy on a standby":    {change: func(c *State) { c.InRecovery, c.Slot.Synced = true, true }, want: replication.ErrUnreachable, text: "standby"},
		"unfinished copy":      {change: func(c *State) { c.InRecovery, c.Slot.Synced, c.Slot.Temporary = true, true, true }, want: replication.ErrUnreachable, text: "standby"},
		"lost copy":            {change: func(c *State) { c.InRecovery, c.Slot.Synced, c.Slot.WALStatus = true, true, "lost" }, want: replication.ErrUnreachable, text: "standby"},
		"standby without slot": {change: func(c *State) { c.InRecovery, c.Slot = true, nil }, want: replication.ErrUnreachable, text: "standby"},
		"synced, and promoted": {change: func(c *State) { c.Slot.Synced = true }},
	} {
		t.Run(name, func(t *testing.T) {
			c := &State{
				ServerVersion: 180001, Database: "app", WALLevel: "logical", Encoding: "UTF8", PublicationName: "pub", SlotName: "slot",
				Publication: &Publication{Name: "pub", Insert: true, Tables: []Table{{Name: "outbox"}}},
				Slot:        &Slot{Name: "slot", Plugin: "pgoutput", Database: "app", WALStatus: "reserved", ConfirmedFlushLSN: 0x20},
			}
			tc.change(c)
			err := c.Verify()
			if tc.want == nil {
				if err != nil {
					t.Errorf("Verify: %v", err)
				}
				return
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Verify: %v, want %v with %q", err, tc.want, tc.text)
			}
		})
	}
}
