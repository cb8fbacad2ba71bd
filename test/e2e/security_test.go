package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// What docs/security.md grants is enough to set up and to run, and no more than it says.
func TestDocumentedRole(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "pw")
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	config := yamlFile(t, `
source: {dsn: %q, publication: outbox_cdc, slot: outbox_cdc}
outbox: {topic: "${route}"}
sink: {kafka: {brokers: [%q], create_topics: {partitions: 1}}}
`, s.dsn("pw"), cluster.Addrs[0])
	if out, code := rig.Command(t, "setup", "-c", config); code != 0 {
		t.Fatal(out)
	}
	process := rig.Start(t, "run", "-c", config)
	process.Logged(t, "streaming")
	s.write(t)
	wait.For(t, "the record", func() bool { return len(cluster.ReadAll(t, "orders")) == 1 })
	rig.AwaitConfirmed(t, s.db.Conn(t), "outbox_cdc")
	process.Terminate(t)
	if out := process.Stderr.String(); strings.Contains(out, "level=WARN") || strings.Contains(out, "level=ERROR") {
		t.Errorf("the relay complains:\n%s", out)
	}

	for name, dsn := range map[string]string{
		"without TLS":          strings.ReplaceAll(s.dsn("pw"), "verify-full", "disable"),
		"another database":     replaceDatabase(s.dsn("pw"), "postgres"),
		"physical replication": s.dsn("pw", "&replication=true"),
		"another password":     s.dsn("wrong"),
	} {
		if conn, err := pgconn.Connect(t.Context(), dsn); err == nil {
			t.Errorf("%s: connected", name)
			conn.Close(context.Background())
		}
	}
	conn, err := pgconn.Connect(t.Context(), s.dsn("pw"))
	rig.Must(t, err)
	defer conn.Close(context.Background())
	for _, sql := range []string{"SELECT * FROM outbox", "DELETE FROM outbox", "CREATE TABLE x (id int)", "CREATE PUBLICATION p", "ALTER SYSTEM SET ssl = off"} {
		if _, err := conn.Exec(t.Context(), sql).ReadAll(); err == nil {
			t.Errorf("cdc may %s", sql)
		}
	}
}

// A password that is replaced on both sides while the relay runs heals without a restart, at
// whichever end it is replaced first.
func TestPasswordsRotate(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	s := startSecured(t, "pg-one")
	cluster := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
		kfake.Superuser("SCRAM-SHA-256", "relay", "kafka-one"), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
	asAdmin := kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism())
	admin := kadm.NewClient(cluster.Client(t, asAdmin))
	arrived := func() int64 {
		ends, err := admin.ListEndOffsets(t.Context(), "orders")
		rig.Must(t, err)
		end, _ := ends.Lookup("orders", 0)
		return end.Offset
	}
	dsn, password := writeFile(t, "dsn", []byte(s.dsn("pg-one"))), writeFile(t, "password", []byte("kafka-one"))
	config := yamlFile(t, `
source: {dsn_file: %q, publication: outbox_cdc, slot: outbox_cdc}
outbox: {topic: "${route}"}
sink:
  kafka:
    brokers: [%q]
    create_topics: {partitions: 1}
    sasl: {mechanism: SCRAM-SHA-256, user: relay, password_file: %q}
`, dsn, cluster.Addrs[0], password)
	if out, code := rig.Command(t, "setup", "-c", config); code != 0 {
		t.Fatal(out)
	}
	process := rig.Start(t, "run", "-c", config)
	process.Logged(t, "streaming")
	next := int64(0)
	arrives := func(after string) {
		t.Helper()
		s.write(t)
		next++
		wait.For(t, "a record after "+after, func() bool { return arrived() >= next })
	}
	arrives("the start")

	s.db.Exec(t, "ALTER ROLE cdc PASSWORD 'pg-two'")
	s.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
	process.Logged(t, "28P01")
	rig.Must(t, os.WriteFile(dsn, []byte(s.dsn("pg-two")), 0o600))
	arrives("Postgres' password, server first")

	_, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "relay", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "kafka-two"},
	})
	rig.Must(t, err)
	cluster.HangUp("orders")
	s.write(t)
	next++
	process.Logged(t, "broker rejects the connection")
	rig.Must(t, os.WriteFile(password, []byte("kafka-two"), 0o600))
	arrives("Kafka's password, server first")
	process.Terminate(t)
	if got := arrived(); got != next {
		t.Errorf("%d records, want %d", got, next)
	}
	if out := process.Stderr.String(); strings.Contains(out, "pg-one") || strings.Contains(out, "pg-two") || strings.Contains(out, "kafka-one") || strings.Contains(out, "kafka-two") {
		t.Errorf("a password is in the log:\n%s", out)
	}
}

// Names are the user's: what Postgres takes as a name works, whatever is in it, and nothing of it
// is ever run as SQL.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})) // roles are the server's, and other tests create some
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	conn := db.Conn(t)
	_, err := conn.Exec(t.Context(), `CREATE TABLE victim (id int); INSERT INTO victim VALUES (1)`)
	rig.Must(t, err)
	quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	catalog := func() string {
		return rig.Ask[string](t, conn, `SELECT concat_ws('|', (SELECT count(*) FROM victim), (SELECT string_agg(pubname, ',' ORDER BY 1) FROM pg_publication),
			(SELECT string_agg(relname, ',' ORDER BY 1) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'),
			(SELECT string_agg(slot_name, ',') FROM pg_replication_slots WHERE database = current_database()),
			(SELECT string_agg(rolname, ',' ORDER BY 1) FROM pg_roles))`)
	}
	for i, name := range []string{
		`"; DROP TABLE victim; --`, `'; DROP TABLE victim; $$ \'`, "new\nline\ttab\x1b[31m\x7f, Größe ☃, %s ${x}", strings.Repeat("ü", 31) + "x", // 63 bytes
	} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			slot := fmt.Sprintf("hostile_%d_%s", i, db.Name)
			before := catalog()
			_, err := conn.Exec(t.Context(), fmt.Sprintf(`CREATE TABLE %s (%s uuid DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text)`, quote(name), quote(name)))
			rig.Must(t, err)
			config := yamlFile(t, `
source: {dsn: %q, publication: %q, slot: %q}
outbox: {tables: [%q], topic: "${route}", columns: {id: %q}}
sink: {kafka: {brokers: [%q], create_topics: {partitions: 1}}}
position_topic: ""
`, db.DSN, name, slot, quote(name), name, cluster.Addrs[0])
			had := len(cluster.ReadAll(t, "orders"))
			process := rig.Start(t, "run", "-c", config)
			process.Logged(t, "streaming")
			_, err = conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (aggregatetype, aggregateid, type, payload) VALUES ('orders', $1, $1, $1)`, quote(name)), name)
			rig.Must(t, err)
			wait.For(t, "the record", func() bool { return len(cluster.ReadAll(t, "orders")) == had+1 })
			if rec := cluster.ReadAll(t, "orders")[had]; string(rec.Key) != name || string(rec.Value) != name || rig.Header(rec, "eventType") != name {
				t.Errorf("key %q, value %q, type %q", rec.Key, rec.Value, rig.Header(rec, "eventType"))
			}
			process.Terminate(t)
			plainText(t, process.Stderr.String())
			wait.For(t, "the slot to be free", func() bool {
				return !rig.Ask[bool](t, conn, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, slot)
			})
			out, code := rig.Command(t, "setup", "-c", config, "--drop")
			if code != 0 {
				t.Error(out)
			}
			plainText(t, out)
			_, err = conn.Exec(t.Context(), "DROP TABLE "+quote(name))
			rig.Must(t, err)
			if after := catalog(); after != before {
				t.Errorf("catalog\n%s, was\n%s", after, before)
			}
		})
	}
}

// Names that Postgres would cut off, not take, or take for something else are refused before
// anything is contacted or made.
func TestRefusedNames(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE victim (id int)`)
	long := strings.Repeat("ü", 32) // 64 bytes
	for name, set := range map[string][2]string{
		"slot with a quote":       {"source.slot", `x'; DROP TABLE victim; --`},
		"slot in capitals":        {"source.slot", "Orders"},
		"slot with a line's end":  {"source.slot", "orders\n"},
		"slot of 64":              {"source.slot", strings.Repeat("x", 64)},
		"publication of 64 bytes": {"source.publication", long},
		"publication with NUL":    {"source.publication", "a\x00b"},
		"no publication":          {"source.publication", ""},
		"table as SQL":            {"outbox.tables", "victim; DROP TABLE victim"},
		"table in quotes as SQL":  {"outbox.tables", `"victim" (id); DROP TABLE victim; --`},
		"table with NUL":          {"outbox.tables", "vic\x00tim"},
		"topic of the cluster":    {"outbox.topic", "__consumer_offsets"},
		"name with a line's end":  {"name", "a\nlevel=ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"source.publication": "p", "source.slot": "refused", "outbox.tables": "victim", "outbox.topic": "t", "name": "n"}
			values[set[0]] = set[1]
			config := yamlFile(t, `
name: %q
source: {dsn: %q, publication: %q, slot: %q}
outbox: {tables: [%q], topic: %q}
`, values["name"], db.DSN, values["source.publication"], values["source.slot"], values["outbox.tables"], values["outbox.topic"])
			out, code := rig.Command(t, "setup", "-c", config)
			if code == 0 || code == 1 {
				t.Errorf("exit code %d", code)
			}
			plainText(t, out)
			if left := pgtest.QueryRow[int64](t, db, `SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())`); left != 0 {
				t.Errorf("%d objects were made:\n%s", left, out)
			}
		})
	}
	if n := pgtest.QueryRow[int64](t, db, `SELECT count(*) FROM victim`); n != 0 {
		t.Error(n)
	}
}

// plainText fails the test if a terminal or a log reader would see in text more than lines.
func plainText(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
			t.Errorf("control character %q in %q", line[i], line)
		}
	}
}

// Values of rows that get into log lines and errors, ids and topics, cannot make up lines of
// their own.
func TestLogsCannotBeForged(t *testing.T) {
	t.Parallel()
	const forged = "x\nlevel=ERROR msg=forged\r\x1b[2J\x7f\u2028\u009b31m"
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			db := pgtest.Database(t)
			cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "dead"))
			db.Exec(t, `CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, type text, payload text)`)
			run := func(onBadRecord string) *rig.Process {
				p := rig.Start(t, "run", "--set", "log.format="+format, "-c", yamlFile(t, `
source: {dsn: %q, publication: p, slot: %q}
sink: {kafka: {brokers: [%q], create_topics: {partitions: 1}}}
on_bad_record: %s
dead_letter_topic: dead
log: {level: debug}
`, db.DSN, "forged_"+db.Name, cluster.Addrs[0], onBadRecord))
				p.Logged(t, "streaming")
				return p
			}
			insert := func() {
				db.Exec(t, `INSERT INTO outbox VALUES ($1, $1, $1, $1, $1)`, forged)
			}
			putAside := run("dead-letter")
			insert()
			wait.For(t, "the dead letter", func() bool { return len(cluster.ReadAll(t, "dead")) == 1 })
			putAside.Terminate(t)
			stops := run("stop")
			insert()
			if code := stops.Exit(t); code != 14 {
				t.Errorf("exit code %d", code)
			}
			for _, out := range []string{putAside.Stderr.String(), stops.Stderr.String()} {
				plainText(t, out)
				if strings.Contains(out, "\nlevel=ERROR msg=forged") || strings.Contains(out, "\u009b") {
					t.Errorf("forged:\n%s", out)
				}
				if !strings.Contains(out, `msg=forged`) {
					t.Errorf("the id is not told:\n%s", out)
				}
			}
		})
	}
}
