package runbook

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// exitRecipes follow the sections about exit codes.
var exitRecipes = map[string]recipe{
	"Runbook":        func(t *testing.T, o *operation, srv *pgserver.Server) { o.on(t, srv).streams(t) },
	"Start here":     startHere,
	"Check the slot": checkTheSlot,
	"Exit 0":         long(stopWithoutKafka),
	"Exit 1":         unexpected,
	"Exit 2":         wrongConfiguration,

	"`28P01`: the password is wrong":                                         wrongPassword,
	"`28000`: no `pg_hba.conf` entry":                                        long(noHBALine),
	"`28000`, `42501`: the role lacks a privilege":                           long(noPrivilege),
	"`wal_level` is not `logical`":                                           long(wrongWALLevel),
	"`53300`: no free WAL sender or connection":                              long(noFreeSender),
	"`53400`: no free slot":                                                  long(noFreeSlot),
	"setup waits for other transactions (55P03)":                             long(setupWaits),
	"A transaction locks a table (55P03)":                                    long(tableLocked),
	"the slot is physical, temporary, of another plugin, or has `two_phase`": long(slotOfAnotherKind),

	"Exit 11":                     long(slotInvalidated),
	"Exit 12":                     long(slotHeld),
	"The publication has changed": long(publicationMissing),
	"has no table":                long(changedPublication(`ALTER PUBLICATION outbox_cdc DROP TABLE outbox`)),
	"does not publish inserts":    long(changedPublication(`ALTER PUBLICATION outbox_cdc SET (publish = 'update')`)),
	"has another row filter":      long(rowFilter),
	"A column is missing":         long(columnMissing),
	"An UPDATE, DELETE or TRUNCATE stopped the relay": long(changesStopRelay),
	"Fix the cause":                         tooLargeForTopic,
	"Send the row to the dead-letter topic": sendToDeadLetterTopic,
	"Skip the transaction":                  long(skipTransaction),
	"Exit 15":                               long(slotRecreated),
	"A standby was promoted without the end of the WAL":   long(recordsWithoutRows),
	"the position record cannot be read":                  long(unreadableRecord),
	"the record is of another slot, or of another system": long(nameOfAnotherRelay),
	"No broker can be reached":                            noBroker,
	"Kafka rejects the user":                              userRejected,
	"Exit 21":                                             long(fenced),
}

func startHere(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	o.more = fmt.Sprintf("admin: {listen: %q}\n", r.AdminAt(t))
	o.configure(t)
	r.Ready(t)
	if out, _ := o.sh(t); !strings.Contains(out, "● Healthy") {
		t.Errorf("status says:\n%s", out)
	}
}

func checkTheSlot(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).stream(t)
	o.delivers(t)
	rows := o.sql(t)
	if len(rows) != 1 || rows[0]["active"] != "t" || rows[0]["wal_status"] != "reserved" || rows[0]["retained"] == "" {
		t.Errorf("the slot: %v", rows)
	}
}

func stopWithoutKafka(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	fault := o.fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
	id := o.write(t)
	rig.Must(t, fault.Wait(t.Context(), 1))
	r.Signal(t, syscall.SIGTERM)
	if code := r.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	last := rig.Tail(r.Stderr.String(), 1)
	if !strings.HasPrefix(last, "exit 0 (stopped): slot "+o.slot+" at ") || !strings.HasSuffix(last, "next: start the relay again to continue") {
		t.Errorf("the last line is %q", last)
	}
	fault.Remove()
	o.stream(t)
	o.arrived(t, id)
}

// garbled changes an Insert message into one that no server sends.
func garbled(kind byte, body []byte, pass func([]byte)) {
	if m := walproxy.ParseWAL(body); kind == 'd' && m.Kind == 'I' {
		body = bytes.Clone(body)
		body[25] = '!'
	}
	pass(body)
}

func unexpected(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	proxy := walproxy.Start(t, walproxy.Config{Target: srv.Addr(), Tamper: walproxy.Tamper{FromServer: garbled}})
	o.source = proxy.Addr()
	o.configure(t)
	r := o.stream(t)
	id := o.write(t)
	code := r.Exit(t)
	out := r.Stderr.String()
	if last := rig.Tail(out, 1); code != 1 || !strings.HasPrefix(last, "exit 1 (unexpected): slot "+o.slot+" at ") || !strings.Contains(out, `unknown type '!'`) {
		t.Errorf("exit code %d, want 1:\n%s", code, out)
	}
	o.source = srv.Addr()
	o.configure(t)
	o.stream(t)
	o.arrived(t, id)
}

func wrongConfiguration(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	o.more = "log: {lvl: debug}\n"
	o.configure(t)
	r := o.run(t, runLine)
	if code := r.Exit(t); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if last := rig.Tail(r.Stderr.String(), 1); !strings.HasPrefix(last, "exit 2 (configuration or usage); next: fix the above") {
		t.Errorf("the last line is %q", last)
	}
	o.more = ""
	o.configure(t)
	if out, _ := o.sh(t); !strings.Contains(out, o.slot) || strings.Contains(out, secret) {
		t.Errorf("the configuration in force:\n%s", out)
	}
	o.stream(t)
}

func wrongPassword(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, nil))
	o.exec(t, `ALTER ROLE cdc PASSWORD 'another' VALID UNTIL '2020-01-01'`)
	o.fails(t, 10, "28P01", `as "cdc"`, "ALTER ROLE … PASSWORD")
	o.names["the one in outbox-cdc.yaml"] = secret
	o.sql(t)
	o.fails(t, 10, "28P01", "VALID UNTIL")
	o.sql(t)
	o.stream(t)
	o.delivers(t)
}

func noHBALine(t *testing.T, o *operation, _ *pgserver.Server) {
	srv := startSource(t, nil)
	o.on(t, srv)
	write := func(lines string) {
		t.Helper()
		rig.Must(t, srv.WriteFile("pg_hba.conf", []byte(trusted+lines)))
	}
	write("host replication cdc 127.0.0.1/32 scram-sha-256\n")
	o.exec(t, `SELECT pg_reload_conf()`)
	wait.For(t, "the line to be gone", func() bool { return !o.admitted() })
	out := o.fails(t, 10, "no pg_hba.conf entry", `"replication" does not apply`)
	write(regexp.MustCompile(`host \S+ \S+ \S+ scram-sha-256`).FindString(out) + "\n")
	o.sql(t)
	wait.For(t, "the line to be there", o.admitted)
	o.stream(t)
	o.delivers(t)
}

// admitted reports whether role cdc can connect.
func (o *operation) admitted() bool {
	conn, err := pgx.Connect(context.Background(), strings.Replace(o.db.DSN, "postgres@", "cdc:"+secret+"@", 1))
	if err != nil {
		return false
	}
	conn.Close(context.Background())
	return true
}

func noPrivilege(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, nil))
	for statement, says := range map[string]string{
		`ALTER ROLE cdc NOLOGIN`:                          "is not permitted to log in",
		`ALTER ROLE cdc LOGIN NOREPLICATION`:              "ALTER ROLE … REPLICATION",
		`REVOKE CONNECT ON DATABASE app FROM PUBLIC, cdc`: "GRANT CONNECT",
	} {
		o.exec(t, statement)
		o.fails(t, 10, "cdc", says)
		o.next = 0
		o.sql(t)
		o.sql(t)
	}
	o.stream(t)
	o.delivers(t)
}

func wrongWALLevel(t *testing.T, o *operation, _ *pgserver.Server) {
	srv := startSource(t, map[string]string{"wal_level": "replica"})
	o.fake = kafkatest.Fake(t)
	o.with(t, srv, o.fake.Cluster)
	o.command(t, `outbox-cdc migrate up --dsn "$OWNER_DSN"`)
	o.fails(t, 10, "wal_level is replica", "ALTER SYSTEM SET wal_level = logical")
	o.sql(t)
	rig.Must(t, srv.Restart(t.Context()))
	o.setup(t).stream(t)
	o.delivers(t)
}

func noFreeSender(t *testing.T, o *operation, _ *pgserver.Server) {
	srv := startSource(t, map[string]string{"max_wal_senders": "1"})
	o.patience = 2 * time.Second
	o.on(t, srv)
	o.db.ReplicationConn(t)
	o.fails(t, 10, "53300", "max_wal_senders")
	o.sql(t)
	if rows := o.sql(t); len(rows) != 1 {
		t.Errorf("WAL senders: %v", rows)
	}
	rig.Must(t, srv.Restart(t.Context()))
	o.db.ReplicationConn(t)
	o.stream(t)
	o.delivers(t)
}

func noFreeSlot(t *testing.T, o *operation, _ *pgserver.Server) {
	srv := startSource(t, map[string]string{"max_replication_slots": "1"})
	o.fake = kafkatest.Fake(t)
	o.with(t, srv, o.fake.Cluster)
	o.exec(t, `SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')`)
	o.command(t, `outbox-cdc migrate up --dsn "$OWNER_DSN"`)
	o.ends(t, o.run(t, `outbox-cdc setup -c outbox-cdc.yaml --dsn "$OWNER_DSN"`), 10, "53400", "max_replication_slots")
	if rows := o.sql(t); len(rows) != 1 || rows[0]["slot_name"] != "left_behind" {
		t.Errorf("slots: %v", rows)
	}
	o.sql(t)
	o.setup(t).stream(t)
	o.delivers(t)
	o.sql(t)
}

func setupWaits(t *testing.T, o *operation, _ *pgserver.Server) {
	srv := startSource(t, nil)
	o.fake = kafkatest.Fake(t)
	o.with(t, srv, o.fake.Cluster)
	o.command(t, `outbox-cdc migrate up --dsn "$OWNER_DSN"`)
	o.exec(t, `CREATE TABLE other (i int)`)
	prepared, open := o.db.Conn(t), o.db.Conn(t)
	for conn, sql := range map[*pgx.Conn]string{
		prepared: `BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'forgotten'`,
		open:     `SET application_name = 'forgotten'; BEGIN; INSERT INTO other VALUES (1)`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	o.sql(t)
	o.setup(t).stream(t)
	o.delivers(t)
}

func tableLocked(t *testing.T, o *operation, srv *pgserver.Server) {
	o.patience = 3 * time.Second
	o.on(t, srv)
	waits := srv.Install().Major >= 16
	lock := func() {
		conn := o.db.Conn(t)
		for _, sql := range []string{`SET application_name = 'deploy'`, `BEGIN`, `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	const found = "s for a lock on table public.outbox; "
	lock()
	if waits {
		if out := o.fails(t, 10, found, `application "deploy"`, "source.dsn is right", "--set startup_timeout=5m"); strings.Contains(out, "Check source.dsn") {
			t.Errorf("the advice is about the DSN:\n%s", out)
		}
	}
	if rows := o.sql(t); len(rows) != 1 || rows[0]["pg_terminate_backend"] != "t" {
		t.Errorf("ended: %v", rows)
	}
	r := o.stream(t)
	o.delivers(t)
	if waits {
		lock()
		r.Logged(t, `level=WARN msg="cannot read the catalog, retrying"`)
		r.Logged(t, found)
		o.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deploy'`)
		r.Logged(t, "catalog readable again")
	}
	o.delivers(t)
}

func slotOfAnotherKind(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	o.exec(t, "SELECT pg_drop_replication_slot('outbox_cdc');\nSELECT pg_create_logical_replication_slot('outbox_cdc', 'test_decoding')")
	o.fails(t, 10, "outbox_cdc", "test_decoding", "choose another slot name")
	o.sh(t)
	o.streams(t)
}

// loseRow streams until the position record has a snapshot of a delivered row, stops the relay, runs
// statements, and inserts a row that the relay does not deliver afterwards. It returns the row's id.
func (o *operation) loseRow(t *testing.T, statements string) (id string) {
	t.Helper()
	r := o.stream(t)
	o.delivers(t)
	rig.AwaitSnapshot(t, o.db, o.kafka, o.slot)
	r.Terminate(t)
	o.exec(t, statements)
	return o.write(t)
}

// recovers follows the section "Exit 11", and requires that the lost row arrives.
func (o *operation) recovers(t *testing.T, lost string) {
	t.Helper()
	o.follow(t, "Exit 11", func(o *operation) { o.streams(t) })
	o.arrived(t, lost)
}

func slotInvalidated(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}))
	lost := o.loseRow(t, `SELECT 1`)
	for range 3 {
		o.exec(t, "SELECT pg_switch_wal();\nCREATE TABLE junk AS SELECT generate_series(1, 1000);\nDROP TABLE junk")
	}
	o.exec(t, `CHECKPOINT`)
	o.fails(t, 11, `slot "outbox_cdc" is invalidated`, "outbox-cdc recover")
	o.streams(t)
	o.arrived(t, lost)
}

func slotHeld(t *testing.T, o *operation, srv *pgserver.Server) {
	frozen := o.on(t, srv).stream(t)
	o.delivers(t)
	frozen.Signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { frozen.Signal(t, syscall.SIGCONT) })
	impatient := runLine + " --set source.wait_for_slot=false"
	o.ends(t, o.run(t, impatient), 12, "outbox_cdc", "is active")
	if rows := o.sql(t); len(rows) != 1 || rows[0]["application_name"] != "outbox-cdc" {
		t.Errorf("the holder: %v", rows)
	}
	o.execAs(t, o.section.blocks[0].role, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`)
	wait.For(t, "the slot to be free", func() bool {
		return o.exec(t, `SELECT active FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`)[0]["active"] == "f"
	})
	r := o.run(t, impatient)
	r.Logged(t, "msg=streaming")
	o.delivers(t)
}

func publicationMissing(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, `DROP PUBLICATION outbox_cdc`)
	o.fails(t, 13, `publication "outbox_cdc" does not exist`, catalog.Terms{Arguments: "-c outbox-cdc.yaml"}.Fill(catalog.InstructStartOver))
	o.execAs(t, "owner", `CREATE PUBLICATION outbox_cdc FOR TABLE outbox`) // the guess of somebody who does not read on
	o.ends(t, o.run(t, runLine+" --accept-gap"), 13, "creating it now does not bring them back", "outbox-cdc recover -c outbox-cdc.yaml")
	o.streams(t)
	o.arrived(t, lost)
}

// changedPublication returns a recipe for a change that the relay detects at its start and a statement
// reverts. The title of the section is in the error.
func changedPublication(change string) recipe {
	return func(t *testing.T, o *operation, srv *pgserver.Server) {
		lost := o.on(t, srv).loseRow(t, change)
		o.fails(t, 13, `publication "outbox_cdc" `+o.section.title, "ALTER PUBLICATION")
		o.sql(t)
		o.fails(t, 13, "since a relay last recorded its position", "outbox-cdc recover") // the row would be missing
		o.follow(t, "The publication has changed", func(o *operation) { o.streams(t) })
		o.arrived(t, lost)
	}
}

func rowFilter(t *testing.T, o *operation, srv *pgserver.Server) {
	if srv.Install().Major < 15 {
		t.Log("Postgres has this from 15 on")
		o.nextBlock(t, "sql")
		return
	}
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	rig.AwaitSnapshot(t, o.db, o.kafka, o.slot)
	o.exec(t, `ALTER PUBLICATION outbox_cdc SET TABLE outbox WHERE (id <> '00000000-0000-0000-0000-000000000000')`)
	reached(t, o.ends(t, r, 13, "has another row filter", "DROP TABLE", "outbox-cdc recover")) // when the relay next polls the catalog
	o.sql(t)
	o.recovers(t, o.write(t))
}

func columnMissing(t *testing.T, o *operation, srv *pgserver.Server) {
	still := o.on(t, srv).loseRow(t, `SELECT 1`)
	o.exec(t, `ALTER TABLE outbox RENAME COLUMN payload TO body`)
	lost := pgtest.QueryRow[string](t, o.db, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, body)
		VALUES (gen_random_uuid(), 'order', 'k', 'T', '{}') RETURNING id::text`)
	o.fails(t, 13, `no column "payload"`, "outbox.columns.payload", "body")
	o.arrived(t, still)
	o.more += o.nextBlock(t, "yaml").text
	o.configure(t)
	o.stream(t)
	o.arrived(t, lost)
}

func changesStopRelay(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	o.exec(t, `ALTER PUBLICATION outbox_cdc SET (publish = 'insert, update')`)
	r := o.stream(t)
	r.Logged(t, "the publication also publishes UPDATEs")
	o.delivers(t)
	o.exec(t, "ALTER PUBLICATION outbox_cdc SET (publish = 'insert, update, delete');\nDELETE FROM outbox")
	o.ends(t, r, 13, "DELETE of public.outbox", "Start the relay again")
	r = o.stream(t)
	o.delivers(t)
	o.exec(t, `UPDATE outbox SET payload = '{"n": 2}'`)
	o.usePosition(t, o.ends(t, r, 13, "UPDATE of public.outbox", "ALTER PUBLICATION outbox_cdc SET (publish = 'insert')"))
	o.sql(t)
	reached(t, o.fails(t, 13, "UPDATE of public.outbox")) // the UPDATE is in the WAL
	o.follow(t, "Skip the transaction", func(o *operation) { o.skips(t) })
	o.exec(t, "UPDATE outbox SET payload = '{}';\nDELETE FROM outbox")
	o.delivers(t)
}

// skips follows the section about skipping a transaction. The relay asks for --accept-gap after the slot was advanced.
func (o *operation) skips(t *testing.T) *rig.Process {
	t.Helper()
	o.sql(t)
	reached(t, o.fails(t, 15, "--accept-gap"))
	return o.streams(t)
}

func tooLargeForTopic(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	id := pgtest.QueryRow[string](t, o.db, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('big', repeat('x', 2000000))) RETURNING id::text`)
	reached(t, o.ends(t, r, 14, id, topic, "max.message.bytes", "on_bad_record=dead-letter"))
	o.sh(t)
	o.stream(t)
	o.arrived(t, id)
	o.delivers(t)
}

// stopsAtBadRow lets the relay stop at a row that cannot become a record.
func (o *operation) stopsAtBadRow(t *testing.T) (id string) {
	t.Helper()
	r := o.stream(t)
	o.delivers(t)
	id = o.insert(t, "no such topic!")
	out := o.ends(t, r, 14, id, "topic name")
	reached(t, out)
	o.usePosition(t, out)
	if !strings.Contains(out, o.named(`SELECT pg_replication_slot_advance('outbox_cdc', '0/1A2B3C8'::pg_lsn + 1)`)) {
		t.Errorf("output lacks the statement that skips the transaction:\n%s", out)
	}
	return id
}

// namePlace replaces the place of the dead letter in the documentation by that of deadLetter.
func (o *operation) namePlace(deadLetter *kgo.Record) {
	o.names[" 0:1 "] = fmt.Sprintf(" %d:%d ", deadLetter.Partition, deadLetter.Offset)
}

func sendToDeadLetterTopic(t *testing.T, o *operation, srv *pgserver.Server) {
	id := o.onBroker(t, srv).stopsAtBadRow(t)
	o.streams(t).Terminate(t)
	deadLetters := o.kafka.ReadN(t, 1, o.named("outbox.dead-letter"))
	if len(deadLetters) != 1 || rig.Header(deadLetters[0], "dead_letter_column_id") != id && rig.Header(deadLetters[0], "id") != id {
		t.Fatalf("dead letters: %v", deadLetters)
	}
	o.namePlace(deadLetters[0])
	if out, _ := o.sh(t); !strings.Contains(out, "1 resent, 0 rejected") {
		t.Errorf("resend says:\n%s", out)
	}
	o.arrived(t, id)
	o.stream(t)
	o.delivers(t)
}

func skipTransaction(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).stopsAtBadRow(t)
	r := o.skips(t)
	o.exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('big', repeat('x', 68000000)))`)
	behind := o.write(t)
	out := o.ends(t, r, 14, "exceeds the limit", "whatever on_bad_record is")
	reached(t, out)
	o.usePosition(t, out)
	o.next = 0
	o.skips(t)
	o.arrived(t, behind)
}

func slotRecreated(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, "SELECT pg_drop_replication_slot('outbox_cdc')")
	o.exec(t, `SELECT pg_create_logical_replication_slot('outbox_cdc', 'pgoutput')`)
	reached(t, o.fails(t, 15, "outbox_cdc", "re-created by somebody else", "--accept-gap"))
	o.recovers(t, lost)
}

func anotherServer(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Terminate(t)
	o.moves(t)
	if rows := o.sql(t); len(rows) != 1 || rows[0]["system_identifier"] == "" {
		t.Errorf("the server: %v", rows)
	}
	o.streams(t)
}

func recordsWithoutRows(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).stream(t)
	there, gone := o.write(t), o.write(t)
	o.arrived(t, there)
	o.arrived(t, gone)
	o.exec(t, `DELETE FROM outbox WHERE id = '`+gone+`'`)
	o.nextBlock(t, "sh") // o.arrived has already checked this
	o.names["8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e01"], o.names["8d3f0b0e-57a0-4a4e-8b9a-0a6d8c9f1e02"] = there, gone
	if rows := o.sql(t); len(rows) != 1 || rows[0]["id"] != gone {
		t.Errorf("the table does not have %v, and %s was deleted", rows, gone)
	}
}

// moves changes source.dsn to a new server with the same objects, where the relay refuses to start.
func (o *operation) moves(t *testing.T) {
	t.Helper()
	other := prepareSource(t, pgtest.StartOther(t, pgserver.Config{}))
	admin := &pgtest.DB{DSN: other.DSN("postgres")}
	admin.Exec(t, `CREATE DATABASE `+o.db.Name+` OWNER owner`)
	o.db = &pgtest.DB{Name: o.db.Name, DSN: other.DSN(o.db.Name), Server: other}
	o.source = other.Addr()
	o.configure(t)
	o.setup(t)
	reached(t, o.fails(t, 15, "the record is of system", "--accept-gap"))
}

func unreadableRecord(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Terminate(t)
	client := o.kafka.Client(t)
	rig.Must(t, client.ProduceSync(t.Context(), &kgo.Record{
		Topic: position.DefaultTopic, Key: []byte(o.slot + "/" + sink.PositionKey), Value: []byte(`{"version": 99}`),
	}).FirstErr())
	o.fails(t, 15, "the position record cannot be read", "position_topic")
	o.streams(t)
}

// nameOfAnotherRelay has two relays with one name, of which the second one has a slot of its own.
func nameOfAnotherRelay(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	o.more = "name: shared\n"
	o.configure(t)
	r := o.stream(t)
	o.delivers(t)
	r.Terminate(t)
	o.slot += "_2"
	o.exec(t, `CREATE PUBLICATION `+o.slot+` FOR TABLE outbox WITH (publish = 'insert');
SELECT pg_create_logical_replication_slot('`+o.slot+`', 'pgoutput')`)
	o.configure(t)
	o.fails(t, 15, "the record is of slot", "set a name of its own", "next: give this relay a name of its own: set name (docs/runbook.md#exit-15)")
	o.streams(t)
}

func noBroker(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	dead := rig.ClosedPort(t)
	o.broker, o.patience = dead, time.Second
	o.configure(t)
	o.fails(t, 20, dead, "sink.kafka.brokers", "Kafka at "+dead)
	o.broker, o.patience = o.kafka.Addrs[0], 0
	o.configure(t)
	o.stream(t)
	o.delivers(t)
}

func userRejected(t *testing.T, o *operation, srv *pgserver.Server) {
	broker := kafkatest.Start(t, kafkatest.Config{
		Users: map[string]string{"cdc": secret},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	o.with(t, srv, broker.Cluster).setup(t)
	o.broker, o.login = broker.SASLAddr(), ", sasl: {mechanism: SCRAM-SHA-512, user: cdc, password: "+secret+"}"
	o.configure(t)
	o.fails(t, 20, "AUTHORIZATION_FAILED", "Create, Describe")
	o.sh(t)
	o.stream(t)
	o.delivers(t)
}

// fenced has another process use the relay's transactional id whenever the relay tries to become the owner.
func fenced(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	rival := o.fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TopLevel: true, Err: kerr.ProducerFenced, Count: -1})
	o.patience = 2 * time.Second
	o.configure(t)
	o.fails(t, 21, "PRODUCER_FENCED", "another program uses transactional id "+position.DefaultTopic+"/"+o.slot)
	rival.Remove()
	o.stream(t)
	o.delivers(t)
}
