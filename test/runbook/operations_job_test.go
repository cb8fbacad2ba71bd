package runbook

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// jobRecipes follow the sections about routine work.
var jobRecipes = map[string]recipe{
	"Check the status":   checkStatus,
	"Large transactions": long(largeTransactions),
	"Preview records":    long(previewRecords),
	"Upgrade the relay":  long(upgradeRelay),
	"Upgrade Postgres to a new major version, or move to another server": long(moveSource),
	"Rotate the password":             long(rotatePassword),
	"Fail over Postgres":              failover,
	"Move to another Kafka cluster":   long(moveSink),
	"Add partitions":                  addPartitions,
	"Prune delivered rows":            long(deleteRows),
	"Re-create the slot":              long(recreateSlot),
	"Add a table":                     long(addTable),
	"Give a table a relay of its own": long(splitRelay),
	"Change the slot":                 long(changeSlot),
	"Replay rows from the table":      long(replayRows),
	"Resend dead letters":             long(resendDeadLetters),
	"End a long transaction":          long(endLongTransaction),
	"Limit retained WAL":              long(limitRetainedWAL),
	"The disk of Postgres is full":    long(diskFull),
	"Remove everything":               removeEverything,

	"Recover":                          recoverSlot,
	"Recover automatically":            long(recoverAutomatically),
	"Prepare for it":                   long(prepareToRecover),
	"Which server this is":             long(anotherServer),
	"Rows were removed from the table": long(recoverUnpruned),
	"The database was upgraded or restored from a dump": long(recoverOtherSystem),
}

func upgradeRelay(t *testing.T, o *operation, srv *pgserver.Server) {
	old := o.on(t, srv).stream(t)
	o.delivers(t)
	_, young := o.sh(t)
	young.Logged(t, "standby: another process uses the slot")
	o.delivers(t)
	old.Terminate(t)
	young.Logged(t, "msg=streaming")
	o.delivers(t)
	o.once(t)
}

// once requires that there are no duplicates.
func (o *operation) once(t *testing.T) {
	t.Helper()
	o.events.mu.Lock()
	defer o.events.mu.Unlock()
	for id, n := range o.events.ids {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
}

func moveSource(t *testing.T, o *operation, _ *pgserver.Server) {
	r := o.on(t, startSource(t, nil)).stream(t) // nothing else writes to this server
	o.delivers(t)
	wait.For(t, "everything to be delivered", func() bool {
		o.next = 0
		return o.sql(t)[0]["delivered"] == "t"
	})
	r.Terminate(t)
	other := startSource(t, nil)
	(&pgtest.DB{DSN: other.DSN("postgres")}).Exec(t, `CREATE DATABASE `+o.db.Name+` OWNER owner`)
	o.db = &pgtest.DB{Name: o.db.Name, DSN: other.DSN(o.db.Name), Server: other}
	o.source = other.Addr()
	o.configure(t)
	o.streams(t)
	o.once(t)
}

func rotatePassword(t *testing.T, o *operation, _ *pgserver.Server) {
	r := o.on(t, startSource(t, nil)).stream(t)
	o.delivers(t)
	o.password = "another-one"
	o.names["the new one"] = o.password
	o.configure(t)
	o.sql(t)
	o.delivers(t)
	r.Signal(t, syscall.SIGHUP)
	r.Logged(t, `msg="configuration reloaded"`)
	o.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE usename = 'cdc'`)
	o.delivers(t)
	r.Terminate(t)
	o.once(t)
}

func failover(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	command := o.named(o.nextBlock(t, "sql").text)
	if srv.Install().Major < 17 {
		t.Log("Postgres has this from 17 on")
		o.nextBlock(t, "sql")
		return
	}
	cfg := o.db.Config(t)
	cfg.User = "owner"
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	rig.Must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), command).ReadAll()
	rig.Must(t, err)
	if rows := o.exec(t, `SELECT failover FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`); rows[0]["failover"] != "t" {
		t.Errorf("the slot: %v", rows)
	}
	if rows := o.sql(t); rows[0]["ready"] != "f" {
		t.Errorf("on the primary: %v", rows)
	}
	o.stream(t)
	o.delivers(t)
}

func moveSink(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Terminate(t)
	waiting := o.write(t)
	other := kafkatest.Fake(t)
	other.CreateTopic(t, topic, 1, nil)
	o.events = collectEvents(t, other.Cluster, topic)
	o.names["$NEW_BROKERS"] = other.Addrs[0]
	o.streams(t)
	o.arrived(t, waiting)
	o.once(t)
}

func addPartitions(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).stream(t)
	o.delivers(t)
	o.sh(t)
	topics, err := o.kafka.Admin(t).ListTopics(t.Context(), topic)
	rig.Must(t, err)
	if n := len(topics[topic].Partitions); n != 12 {
		t.Errorf("%d partitions", n)
	}
	o.delivers(t)
}

func deleteRows(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	o.exec(t, `UPDATE outbox SET created_at = created_at - interval '8 days'`)
	o.delivers(t)
	if out, _ := o.sh(t); !strings.HasPrefix(out, "public.outbox: 1 row from before ") || !strings.Contains(out, " deleted; delivered up to ") {
		t.Errorf("prune said %q", out)
	}
	if rows := o.exec(t, `SELECT count(*) FROM outbox`); rows[0]["count"] != "1" {
		t.Errorf("rows left: %v", rows)
	}
	o.delivers(t)
	r.Terminate(t)
	o.once(t)
}

func recreateSlot(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, `SELECT 1`)
	o.streams(t)
	o.arrived(t, lost)
}

// insertBilling inserts a row into the second table and returns its id.
func (o *operation) insertBilling(t *testing.T) string {
	t.Helper()
	return pgtest.QueryRow[string](t, o.db, `INSERT INTO billing_outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), $1, 'k', 'T', '{}') RETURNING id::text`, o.aggregate)
}

func addTable(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Terminate(t)
	o.sql(t)
	stopped := o.insertBilling(t)
	o.more = "outbox: {tables: [outbox, billing_outbox]}\n"
	o.configure(t)
	r = o.streams(t)
	o.arrived(t, stopped)
	o.arrived(t, o.insertBilling(t))
	r.Terminate(t)
	if out, _ := o.sh(t); !strings.Contains(out, "2 of 2 rows of ") {
		t.Errorf("replay:\n%s", out)
	}
}

// splitRelay gives the second table a relay of its own, with a row of each table in the slots while none runs.
func splitRelay(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).exec(t, "CREATE TABLE billing_outbox (LIKE outbox INCLUDING ALL); ALTER TABLE billing_outbox OWNER TO owner; ALTER PUBLICATION outbox_cdc ADD TABLE billing_outbox")
	o.more = "outbox: {tables: [outbox, billing_outbox]}\n"
	o.configure(t)
	r := o.stream(t)
	o.arrived(t, o.insertBilling(t))
	second := strings.ReplaceAll(o.yaml(), o.slot+", slot: "+o.slot, o.slot+"_2, slot: "+o.slot+"_2") + "name: " + o.slot + "_2\nadmin: {listen: \"\"}\n"
	rig.Must(t, os.WriteFile(filepath.Join(o.dir, "billing.yaml"), []byte(strings.ReplaceAll(second, "[outbox, billing_outbox]", "[billing_outbox]")), 0o600))
	o.sh(t)
	o.arrived(t, o.insertBilling(t))
	o.delivers(t)
	r.Terminate(t)
	rows := []string{o.insertBilling(t), o.write(t)}
	o.names["0/202C978"] = confirmed.FindStringSubmatch(r.Stderr.String())[1]
	o.more = ""
	o.configure(t)
	o.sh(t)
	for _, id := range append(rows, o.insertBilling(t), o.write(t)) {
		o.arrived(t, id)
	}
	o.sql(t)
	o.arrived(t, o.insertBilling(t))
	o.delivers(t)
	if n := o.events.total(); n != 9 {
		t.Errorf("%d records of 9 rows", n)
	}
}

// changeSlot gives the relay another slot, with a row in both slots while no relay runs.
func changeSlot(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	o.names["source.slot=orders"] = "source.slot=" + o.slot + "_2"
	if out, _ := o.sh(t); strings.Contains(out, "takes the place of") {
		t.Errorf("the slot is in use:\n%s", out)
	}
	o.delivers(t)
	r.Terminate(t)
	between := o.write(t)
	o.names["0/202C978"] = confirmed.FindStringSubmatch(r.Stderr.String())[1]
	rig.Must(t, os.WriteFile(filepath.Join(o.dir, "outbox-cdc.yaml"), []byte(strings.ReplaceAll(o.yaml(), "slot: "+o.slot, "slot: "+o.slot+"_2")), 0o600))
	out, r := o.sh(t)
	if !strings.Contains(out, "dropped  slot ") || !strings.Contains(out, "kept     publication ") {
		t.Errorf("the old slot is dropped, and the publication is kept:\n%s", out)
	}
	r.Logged(t, "msg=streaming")
	o.arrived(t, between)
	o.delivers(t)
	o.once(t)
}

// confirmed matches the position in the last line of a relay's log.
var confirmed = regexp.MustCompile(`msg=stopped exit_code=0 confirmed=(\S+)`)

func replayRows(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, `SELECT pg_drop_replication_slot('outbox_cdc')`)
	o.setup(t)
	o.sh(t)
	o.arrived(t, lost)
	o.run(t, runLine+" --accept-gap").Logged(t, "msg=streaming")
	o.delivers(t)
}

func resendDeadLetters(t *testing.T, o *operation, srv *pgserver.Server) {
	const deadLetterTopic = "outbox.dead-letter"
	o.on(t, srv)
	o.fake.CreateTopic(t, deadLetterTopic, 1, nil)
	o.more = "on_bad_record: dead-letter\n"
	o.configure(t)
	r := o.stream(t)
	id := o.insert(t, "no such topic!")
	o.namePlace(o.fake.ReadN(t, 1, deadLetterTopic)[0])
	r.Terminate(t)
	if out, _ := o.sh(t); !strings.Contains(out, "column      id: "+id) {
		t.Errorf("the row is not shown:\n%s", out)
	}
	o.more += "outbox: {topic: " + topic + "}\n"
	o.configure(t)
	if out, _ := o.sh(t); !strings.Contains(out, "1 resent, 0 rejected") {
		t.Errorf("the row is not sent:\n%s", out)
	}
	o.arrived(t, id)
}

func endLongTransaction(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, nil))
	conn := o.db.Conn(t)
	_, err := conn.Exec(t.Context(), `BEGIN; INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', 'k', 'T'); PREPARE TRANSACTION 'forgotten'`)
	rig.Must(t, err)
	if rows := o.sql(t); len(rows) != 1 || rows[0]["gid"] != "forgotten" {
		t.Errorf("prepared transactions: %v", rows)
	}
	o.exec(t, `ROLLBACK PREPARED 'forgotten'`)
}

func limitRetainedWAL(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, nil)).sql(t)
	wait.For(t, "the limit to be in force", func() bool {
		return o.exec(t, `SHOW max_slot_wal_keep_size`)[0]["max_slot_wal_keep_size"] == "50GB"
	})
	o.stream(t)
	if rows := o.exec(t, `SELECT safe_wal_size > 50e9 AS enough FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'`); rows[0]["enough"] != "t" {
		t.Errorf("the slot: %v", rows)
	}
}

func diskFull(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, `SELECT 1`)
	o.sql(t)
	o.fails(t, 11, `slot "outbox_cdc" does not exist`, "outbox-cdc recover")
	o.recovers(t, lost)
}

func removeEverything(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Terminate(t)
	o.sh(t)
	left := o.exec(t, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'outbox_cdc') +
		(SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_class WHERE relname = 'outbox') AS objects`)
	if left[0]["objects"] != "0" {
		t.Errorf("left: %v", left)
	}
	o.setup(t)
	reached(t, o.fails(t, 15, "--accept-gap"))
}
