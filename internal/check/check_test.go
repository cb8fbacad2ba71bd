package check

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestAllMet: for a correct set-up, the check reports all conditions as met on any version. It checks every
// condition, and writes nothing.
func TestAllMet(t *testing.T) {
	t.Parallel()
	pgtest.EachInstall(t, func(t *testing.T, i pgserver.Install) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: i.BinDir, Settings: limited()})
		r := whole(t, srv, kafkatest.Broker(t))
		conditions := Run(t.Context(), r.config(t))
		seen := make(map[string]bool)
		for _, c := range conditions {
			seen[c.Group+" "+c.Name] = true
			if c.State != Met && c.Name != "durability" {
				t.Errorf("%+v", c)
			}
		}
		only := map[string]int{ // conditions that only exist from a major version on
			"synchronized_standby_slots": 17, "idle_replication_slot_timeout": 18,
			"provider": 99, "create": 99, "owner": 99, "via root": 99, "select": 99, "position file": 99, "advertised": 99, // checked only if configured or requested
			"older writer": 99, "probe topic": 99, "retention": 99,
		}
		if !need.Full() {
			only["message.timestamp.before.max.ms"] = 99 // kfake does not support it
		}
		for _, d := range definitions(kafka.Config{}) {
			if since := only[d.name]; !seen[d.group+" "+d.name] && i.Major >= since {
				t.Errorf("%s: %s was not checked", d.group, d.name)
			}
		}
		if n := len(r.kafka.ReadAll(t, r.topic, r.positions)); n > 0 {
			t.Errorf("%d records were written", n)
		}
		if slots := pgtest.QueryRow[int](t, r.db, "SELECT count(*) FROM pg_replication_slots"); slots != 1 {
			t.Errorf("%d slots", slots)
		}
		if found := AtStart(t.Context(), r.config(t)); len(found) > 0 {
			t.Errorf("at the start: %+v", found)
		}
	})
}

// TestNoSelect: the relay's role does not need the right to read the table.
func TestNoSelect(t *testing.T) {
	t.Parallel()
	r := whole(t, pgtest.Start(t, pgserver.Config{Settings: limited()}), kafkatest.Fake(t).Cluster)
	statements(`REVOKE SELECT ON outbox FROM CDC`)(t, r)
	conditions := Run(t.Context(), r.config(t))
	i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Name == "rows" })
	if i < 0 || conditions[i].State != Met || !strings.Contains(conditions[i].Found, "lacks SELECT") || Count(conditions) > 0 {
		t.Errorf("%+v", conditions)
	}
	r.set("outbox.topic", "missing.${route}")
	for _, tc := range []struct{ change, fix string }{
		{`SELECT 1`, "$OPERATOR_DSN"},
		{`GRANT SELECT ON outbox TO CDC; DELETE FROM outbox`, "when the table has rows"},
		{`ALTER TABLE outbox RENAME TO elsewhere`, "when the conditions of the source are met"},
	} {
		statements(tc.change)(t, r)
		conditions = Run(t.Context(), r.config(t))
		i = slices.IndexFunc(conditions, func(c Condition) bool { return c.Name == "known destinations" })
		if i < 0 || conditions[i].State != Doubt || !strings.Contains(conditions[i].Fix, tc.fix) {
			t.Errorf("%s: %+v", tc.change, conditions)
		}
	}
}

// TestNoSelectForARefill: a relay that will have to read the table says at its start that its role may not.
func TestNoSelectForARefill(t *testing.T) {
	t.Parallel()
	r := whole(t, pgtest.Start(t, pgserver.Config{Settings: limited()}), kafkatest.Fake(t).Cluster)
	statements(`REVOKE SELECT ON outbox FROM CDC`)(t, r)
	r.set("source.on_slot_loss", "refill")
	found := AtStart(t.Context(), r.config(t))
	if len(found) != 1 || found[0].Title() != "select outbox" || found[0].State != Failed || !strings.Contains(found[0].Fix, "TO "+replication.QuoteIdent(r.role)) {
		t.Errorf("%+v", found)
	}
}

// A broken is a set-up with one mistake.
type broken struct {
	name   string
	rare   bool // for a full run: one more case of what has one always
	since  int  // major version
	breaks func(t *testing.T, r *rig)
	title  string // of the condition
	state  State
	says   string                     // part of Found
	fix    string                     // part of Fix
	mend   func(t *testing.T, r *rig) // nil: run the Fix of the condition, which is a statement or a command
	also   []string                   // other conditions that are unmet for the same reason
}

// TestBroken: for each mistake, the check reports its condition and no other, and the suggested fix works.
func TestBroken(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	kafka := kafkatest.Broker(t)
	for _, tt := range brokenSources {
		if srv.Install().Major < tt.since {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			if tt.rare {
				need.FullRun(t, "one more case of what has one always")
			}
			r := whole(t, srv, kafka)
			tt.breaks(t, r)
			expect(t, r, tt)
		})
	}
}

func expect(t *testing.T, r *rig, tt broken) {
	t.Helper()
	unmet := r.unmet(t)
	c, ok := unmet[tt.title]
	if !ok {
		t.Fatalf("%s is met; these are not: %+v", tt.title, unmet)
	}
	if c.State != tt.state || !strings.Contains(c.Found, tt.says) || c.Fix == "" || !strings.Contains(c.Fix, tt.fix) {
		t.Errorf("%+v, want state %s and %q", c, tt.state, tt.says)
	}
	for title, other := range unmet {
		if title != tt.title && !slices.Contains(tt.also, title) {
			t.Errorf("also: %+v", other)
		}
	}
	if tt.mend != nil {
		tt.mend(t, r)
	} else {
		r.mend(t, c)
	}
	r.becomesMet(t, tt.title)
}

func statements(sql string) func(*testing.T, *rig) {
	return func(t *testing.T, r *rig) {
		t.Helper()
		r.run(t, strings.Split(strings.NewReplacer("CDC", r.role, "SLOT", "'"+r.db.Name+"'").Replace(sql), ";")...)
	}
}

const byPartition = `ALTER PUBLICATION pub DROP TABLE outbox; ALTER TABLE outbox RENAME TO old;
	CREATE TABLE outbox (LIKE old INCLUDING DEFAULTS INCLUDING IDENTITY) PARTITION BY LIST (type); CREATE TABLE rest PARTITION OF outbox DEFAULT; GRANT SELECT ON outbox, rest TO CDC;
	ALTER PUBLICATION pub ADD TABLE outbox`

var brokenSources = []broken{
	{name: "no REPLICATION", breaks: statements(`ALTER ROLE CDC NOREPLICATION`), title: "role", state: Failed, says: "lacks REPLICATION", fix: "set source.dsn to the relay's role, or "},
	{
		name: "superuser", breaks: func(_ *testing.T, r *rig) { r.role = "postgres" }, title: "least privilege", state: Doubt, says: "is a superuser",
		mend: func(_ *testing.T, r *rig) { r.role = "cdc_" + r.db.Name },
	},
	{
		name: "everybody writes messages", title: "messages", state: Doubt, says: "every role of the database may write events",
		breaks: func(t *testing.T, r *rig) {
			r.set("outbox.messages", "orders")
			r.run(t, emitting(t, r.db, "GRANT", "TO PUBLIC"))
		}, also: []string{"neighbours", "table public.outbox"},
	},
	{
		name: "relay writes no messages", rare: true, title: "messages", state: Doubt, says: "may not execute pg_logical_emit_message", fix: "as a superuser, in database ",
		breaks: func(t *testing.T, r *rig) { r.run(t, emitting(t, r.db, "REVOKE", "FROM "+r.role)) },
	},
	{name: "publication lacks the table", breaks: statements(`ALTER PUBLICATION pub DROP TABLE outbox`), title: "table outbox", state: Failed, says: "not in publication pub"},
	{name: "inserts not published", breaks: statements(`ALTER PUBLICATION pub SET (publish = 'delete')`), title: "publish", state: Failed, says: "not published"},
	{name: "updates published", rare: true, breaks: statements(`ALTER PUBLICATION pub SET (publish = 'insert, update')`), title: "publish", state: Doubt, says: "outbox.on_update"},
	{name: "row filter", rare: true, since: 15, breaks: statements(`ALTER PUBLICATION pub SET TABLE outbox WHERE (aggregatetype = 'order')`), title: "row filter outbox", state: Doubt, says: "(aggregatetype = 'order'::text)"},
	{name: "column list", since: 15, breaks: statements(`ALTER PUBLICATION pub SET TABLE outbox (id, aggregatetype, aggregateid, type)`), title: "columns outbox", state: Failed, says: `no column "payload"`},
	{
		name: "no such column", breaks: func(_ *testing.T, r *rig) { r.set("outbox.columns.key", "orderid") }, title: "columns outbox", state: Failed, says: `no column "orderid" (outbox.columns.key)`,
		mend: statements(`ALTER TABLE outbox RENAME aggregateid TO orderid`),
	},
	{
		name: "wrong column type", rare: true, breaks: func(_ *testing.T, r *rig) { r.set("outbox.columns.timestamp", "at") }, title: "columns outbox", state: Failed, says: `"at" is no timestamp`,
		mend: statements(`ALTER TABLE outbox ALTER at TYPE timestamptz USING at::timestamptz`),
	},
	{
		name: "no table", breaks: func(_ *testing.T, r *rig) { r.set("outbox.tables", "events") }, title: "table events", state: Failed, says: `"events" does not exist`, also: []string{"neighbours"},
		mend: statements(`CREATE TABLE events (LIKE outbox INCLUDING ALL); ALTER PUBLICATION pub SET TABLE events`),
	},
	{name: "no replica identity", breaks: statements(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER PUBLICATION pub SET (publish = 'insert, delete')`), title: "replica identity outbox", state: Failed, says: "Postgres rejects the application's"},
	{name: "partitions by themselves", rare: true, breaks: statements(byPartition), title: "via root outbox", state: Doubt, says: "if the slot is lost, recover cannot refill"},
	{name: "a refill of partitions by themselves", rare: true, breaks: func(t *testing.T, r *rig) {
		r.set("source.on_slot_loss", "refill")
		statements(byPartition)(t, r)
	}, title: "via root outbox", state: Failed, says: "source.on_slot_loss is refill, which is not available"},
	{name: "no column to refill by", breaks: statements(`ALTER TABLE outbox DROP COLUMN xid`), title: "refill outbox", state: Doubt, says: "recover cannot tell"},
	{name: "no column for the refill", rare: true, breaks: func(t *testing.T, r *rig) {
		r.set("source.on_slot_loss", "refill")
		statements(`ALTER TABLE outbox DROP COLUMN position`)(t, r)
	}, title: "refill outbox", state: Failed, says: "source.on_slot_loss"},
	{name: "refill may not read", breaks: func(t *testing.T, r *rig) {
		r.set("source.on_slot_loss", "refill")
		statements(`REVOKE SELECT ON outbox FROM CDC`)(t, r)
	}, title: "select outbox", state: Failed, says: "source.on_slot_loss"},
	{name: "row security", breaks: statements(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY tenant ON outbox USING (true)`), title: "row security outbox", state: Doubt, says: "(policies: tenant); the relay delivers every row nevertheless"},
	{name: "row security of a refill", rare: true, breaks: func(t *testing.T, r *rig) {
		r.set("source.on_slot_loss", "refill")
		statements(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)(t, r)
	}, title: "row security outbox", state: Failed, says: "source.on_slot_loss: refill reads the table, and row-level security of table public.outbox hides rows"},
	{name: "copy may not read", rare: true, breaks: func(t *testing.T, r *rig) {
		r.set("source.create", "slot")
		r.set("source.initial_copy", "true")
		statements(`SELECT pg_drop_replication_slot(SLOT); REVOKE SELECT ON outbox FROM CDC`)(t, r)
	}, title: "select outbox", state: Failed, says: "may not"},
	{
		name: "publication for all tables", rare: true, breaks: statements(`CREATE TABLE hb (id int); DROP PUBLICATION pub; CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert')`), title: "neighbours", state: Doubt, says: "not in outbox.tables",
		mend: statements(`DROP TABLE hb; DROP PUBLICATION pub; CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`),
	},
	{
		name: "a row that cannot be a record", breaks: func(t *testing.T, r *rig) {
			r.set("outbox.topic", r.topic+"${aggregateid}")
			statements(`UPDATE outbox SET aggregateid = ''; INSERT INTO outbox (aggregatetype, type) VALUES ('order', 'x')`)(t, r)
		}, title: "rows outbox", state: Doubt, says: "1 of the last ", fix: "such a row stops the relay",
		mend: statements(`DELETE FROM outbox WHERE type = 'x'`),
	},
	{
		name: "a row that parks a key", rare: true, breaks: func(t *testing.T, r *rig) {
			r.set("on_bad_record", "park")
			r.set("dead_letter_topic", r.kafka.Topic(t, 2, map[string]string{"retention.ms": "-1", "max.message.bytes": "50000000"}))
			r.set("outbox.topic", r.topic+"${aggregateid}")
			statements(`UPDATE outbox SET aggregateid = ''; INSERT INTO outbox (aggregatetype, type) VALUES ('order', 'x')`)(t, r)
		}, title: "rows outbox", state: Doubt, says: "1 of the last ", fix: "such a row becomes a dead letter, and parks its key",
		mend: statements(`DELETE FROM outbox WHERE type = 'x'`),
	},
	{name: "records too large", breaks: func(t *testing.T, r *rig) {
		r.topic = r.kafka.Topic(t, 2, map[string]string{"max.message.bytes": "5000"})
		r.db.Exec(t, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'large', to_jsonb(repeat('x', 6000)))`)
	}, title: "max.message.bytes TOPIC", state: Failed, says: "5000, but one of the last rows is a record of 6"},
	{name: "nothing there, and no right to make it", breaks: func(t *testing.T, r *rig) {
		r.set("source.create", "all")
		statements(`SELECT pg_drop_replication_slot(SLOT); DROP PUBLICATION pub`)(t, r)
	}, title: "owner outbox", state: Failed, says: "does not own the table", fix: "as the owner of the tables", also: []string{"create"}, mend: statements(`ALTER TABLE outbox OWNER TO CDC`)},
	{name: "no right to publish its own table", rare: true, breaks: func(t *testing.T, r *rig) {
		r.set("source.create", "all")
		statements(`SELECT pg_drop_replication_slot(SLOT); DROP PUBLICATION pub; ALTER TABLE outbox OWNER TO CDC`)(t, r)
	}, title: "create", state: Failed, says: "lacks CREATE on database", fix: "as the owner of the database: GRANT CREATE ON DATABASE "},
	{
		name: "no slot", breaks: statements(`SELECT pg_drop_replication_slot(SLOT)`), title: "slot", state: Failed, says: "does not exist",
		mend: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput") },
	},
	{name: "slot of another plugin", rare: true, breaks: func(t *testing.T, r *rig) {
		statements(`SELECT pg_drop_replication_slot(SLOT)`)(t, r)
		r.makeSlot(t, "test_decoding")
	}, title: "plugin", state: Failed, says: "test_decoding", mend: func(t *testing.T, r *rig) {
		statements(`SELECT pg_drop_replication_slot(SLOT)`)(t, r)
		r.makeSlot(t, "pgoutput")
	}},
	{
		name: "slot with two_phase", rare: true, breaks: statements(`SELECT pg_drop_replication_slot(SLOT); SELECT pg_create_logical_replication_slot(SLOT, 'pgoutput', false, true)`), title: "permanent", state: Failed, says: "two_phase",
		mend: func(t *testing.T, r *rig) {
			statements(`SELECT pg_drop_replication_slot(SLOT)`)(t, r)
			r.makeSlot(t, "pgoutput")
		},
	},
	{
		name: "another program streams", title: "held by", state: Doubt, says: `, application "pg_recvlogical" at 127.0.0.1, does not look like a relay`,
		breaks: func(t *testing.T, r *rig) {
			source := r.config(t).Relay.Source
			source.Conn.RuntimeParams = map[string]string{"application_name": "pg_recvlogical"}
			stream, err := replication.Open(t.Context(), source, slog.New(slog.DiscardHandler))
			if err == nil {
				err = stream.Start(t.Context(), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.streams = stream
		},
		mend: func(t *testing.T, r *rig) {
			if err := r.streams.Close(t.Context(), 0); err != nil {
				t.Error(err)
			}
		},
	},
	{name: "little log kept", breaks: statements(`ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'; SELECT pg_reload_conf()`), title: "max_slot_wal_keep_size", state: Doubt, says: "64 MB"},
	{name: "no end of log kept", rare: true, breaks: statements(`ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()`), title: "disk", state: Doubt, says: "until the disk is full"},
	{name: "forgotten prepared transaction", breaks: func(t *testing.T, r *rig) {
		r.change = func(c *Config) { c.Relay.LongTransaction = 1 }
		statements(`BEGIN; INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', 'o-2', 'x'); PREPARE TRANSACTION 'forgotten'`)(t, r)
	}, title: "open transactions", state: Doubt, says: `prepared transaction "forgotten"`, mend: statements(`ROLLBACK PREPARED 'forgotten'`)},
}

func TestWriteText(t *testing.T) {
	conditions := []Condition{
		{Group: Source, Name: "wal_level", State: Met, Found: "logical"},
		{Group: Source, Name: "open transactions", State: Doubt, Found: "prepared transaction \"x\n\x1b[2J\" is open", Fix: "end it"},
		{Group: Sink, Name: "topic", Object: strings.Repeat("t", 60), State: Failed, Found: "does not exist", Fix: "create it"},
	}
	topic := strings.Repeat("t", 60)
	for _, tc := range []struct {
		layout Layout
		want   string
	}{
		{Layout{}, "fails    topic " + topic + ": does not exist\n" +
			"         → create it\n" +
			"warning  open transactions: prepared transaction \\\"x\\n\\x1b[2J\\\" is open\n" +
			"         → end it\n" +
			"ok       1 condition; --all lists all\n" +
			"\n3 conditions: 1 failed, 1 warning, 1 ok\n"},
		{Layout{Width: 40, All: true}, "fails    topic\n" +
			"         " + topic[:31] + "\n" +
			"         " + topic[31:] + ":\n" +
			"         does not exist\n" +
			"         → create it\n" +
			"warning  open transactions: prepared\n" +
			"         transaction \\\"x\\n\\x1b[2J\\\" is\n" +
			"         open\n" +
			"         → end it\n" +
			"ok       wal_level: logical\n" +
			"\n3 conditions: 1 failed, 1 warning, 1 ok\n"},
	} {
		var got strings.Builder
		if err := WriteText(&got, conditions, tc.layout); err != nil || got.String() != tc.want {
			t.Errorf("%v, got:\n%s\nwant:\n%s", err, got.String(), tc.want)
		}
	}
	if n := Count(conditions); n != 1 {
		t.Errorf("%d conditions fail", n)
	}
}

func TestMain(m *testing.M) {
	leak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m)),
		goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock")) // it ends by itself, some time after the last match
}
