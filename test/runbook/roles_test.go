package runbook

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// roleArgs are the arguments with which TestDocumentedRoles runs the commands of docs/roles.md. 0:0 is a dead letter.
var roleArgs = map[string]string{
	"migrate up": "", "setup": "", "setup --grant-operator": "outbox_operator", "check": "", "status": "--set admin.listen=", "tail": "--from slot --until-end",
	"dead-letter list": "", "dead-letter show": "0:0", "dead-letter resend": "--all --dry-run --set outbox.topic=outbox.event.order",
	"audit": "", "replay": "--since 1h --where aggregatetype='order' --dry-run", "prune": "--older-than 1h", "recover": "",
	"inbox list": "", "inbox retry": "--consumer n --all", "inbox discard": "00000000-0000-0000-0000-000000000001 --consumer n", "inbox prune": "--older-than 1h",
}

// TestDocumentedRoles creates the roles of docs/roles.md with its statements, and runs every command of its table as each
// of the roles.
func TestDocumentedRoles(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it runs every command as each role")
	c := newRoleCase(t)
	table := roleTable(t)
	for _, row := range table {
		if row.command == "run" { // the commands before recover need a relay
			for _, role := range row.works {
				c.runs(t, role)
			}
		}
	}
	c.relay = rig.Start(t, "run", "-c", c.config, "--dsn", c.dsn("cdc"))
	c.relay.Logged(t, "streaming")
	c.exec(t, "order_service", `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', 'k', 'T')`)
	c.exec(t, "order_service", `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'no such topic!', 'k', 'T')`)
	rig.AwaitConfirmed(t, c.db.Conn(t), "outbox_cdc")
	rig.AwaitSnapshot(t, c.db, c.kafka, "outbox_cdc")
	for _, row := range table {
		if row.command == "run" {
			continue
		}
		args, known := roleArgs[row.command]
		if !known {
			t.Errorf("no arguments for %q", row.command)
		}
		for _, role := range append(slices.Clone(row.refused), row.works...) {
			c.prepare(t, row.command)
			want := 0
			if slices.Contains(row.refused, role) {
				want = exit.Source
			}
			line := slices.Concat(strings.Fields(row.command), strings.Fields(args), []string{"-c", c.config, "--dsn", c.dsn(role)})
			if out, code := rig.Command(t, line...); code != want {
				t.Errorf("%s as %s: exit code %d, want %d\n%s", row.command, role, code, want, out)
			}
		}
	}
}

// A roleRow is a row of the table: the roles for which the command works, and those to which Postgres refuses it.
type roleRow struct {
	command        string
	works, refused []string
}

// roleTable returns the table of commands in docs/roles.md.
func roleTable(t *testing.T) (table []roleRow) {
	t.Helper()
	page, err := os.ReadFile("../../docs/roles.md")
	rig.Must(t, err)
	columns := []string{"outbox_owner", "cdc", "outbox_operator", "notification_service"}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		command := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if len(cells) != len(columns)+2 || command == "command" || strings.HasPrefix(command, "---") {
			continue
		}
		row := roleRow{command: command}
		for i, role := range columns {
			switch mark := strings.TrimSpace(cells[i+1]); mark {
			case "✔":
				row.works = append(row.works, role)
			case "–":
				row.refused = append(row.refused, role)
			case "":
			default:
				t.Errorf("%s: %q is no mark", command, mark)
			}
		}
		table = append(table, row)
	}
	if len(table) < 10 {
		t.Fatalf("%d rows in the table", len(table))
	}
	return table
}

// A roleCase is a server with the roles of the page.
type roleCase struct {
	db     *pgtest.DB
	kafka  *kafkatest.Cluster
	config string
	relay  *rig.Process
}

func newRoleCase(t *testing.T) *roleCase {
	t.Helper()
	c := &roleCase{db: pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafka: kafkatest.Fake(t).Cluster}
	c.kafka.CreateTopic(t, "outbox.event.order", 1, nil)
	c.config = filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	rig.Must(t, os.WriteFile(c.config, []byte("on_bad_record: dead-letter\nsink: {kafka: {brokers: ["+c.kafka.Addrs[0]+"], create_topics: {partitions: 1}}}\n"), 0o600))
	var blocks []block
	for _, s := range readPage(t, "../../docs/roles.md") {
		blocks = append(blocks, s.blocks...)
	}
	if len(blocks) != 4 {
		t.Fatalf("%d blocks on the page", len(blocks))
	}
	c.db.Exec(t, strings.ReplaceAll(blocks[0].text, "DATABASE app", "DATABASE "+c.db.Name))
	for line := range strings.Lines(blocks[1].text) {
		line = strings.NewReplacer(`"$OWNER_DSN"`, c.dsn("outbox_owner"), "-c outbox-cdc.yaml", "-c "+c.config).Replace(line)
		if out, code := rig.Command(t, strings.Fields(line)[1:]...); code != 0 || strings.Contains(out, "warning") {
			t.Fatalf("%s: exit code %d\n%s", line, code, out)
		}
	}
	c.exec(t, "outbox_owner", blocks[2].text)
	const rights = `SELECT string_agg(relname || ' ' || privilege_type, ', ' ORDER BY relname, privilege_type)
		FROM pg_class, aclexplode(relacl) WHERE grantee = 'outbox_operator'::regrole`
	granted := pgtest.QueryRow[string](t, c.db, rights)
	c.exec(t, "outbox_owner", `REVOKE ALL ON outbox FROM outbox_operator; REVOKE ALL ON SEQUENCE outbox_position_seq FROM outbox_operator;`+blocks[3].text)
	if shown := pgtest.QueryRow[string](t, c.db, rights); shown != granted {
		t.Errorf("setup grants %s, and the statements of the page %s", granted, shown)
	}
	return c
}

// dsn is that of a role of the page.
func (c *roleCase) dsn(role string) string {
	return strings.Replace(c.db.DSN, "//postgres@", "//"+role+"@", 1)
}

func (c *roleCase) exec(t *testing.T, role, sql string) {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), c.dsn(role))
	rig.Must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql).ReadAll()
	rig.Must(t, err)
}

// runs runs a relay as the role until it streams.
func (c *roleCase) runs(t *testing.T, role string) {
	t.Helper()
	process := rig.Start(t, "run", "-c", c.config, "--dsn", c.dsn(role))
	process.Logged(t, "streaming")
	process.Terminate(t)
}

// prepare makes what the command works on.
func (c *roleCase) prepare(t *testing.T, command string) {
	t.Helper()
	switch command {
	case "recover":
		if c.relay != nil {
			c.relay.Terminate(t)
			c.relay = nil
		}
		c.db.Exec(t, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`)
	case "inbox retry", "inbox discard":
		c.db.Exec(t, `INSERT INTO inbox_events (consumer, event_id, lane, type, topic, partition, log_offset, header_names, header_values, produced_at, attempts, parked_at)
			VALUES ('n', '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'T', 't', 0, 0, '{}', '{}', now(), 1, now()) ON CONFLICT DO NOTHING`)
	}
}
