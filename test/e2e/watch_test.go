package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const outboxColumns = `(id int PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text, payload jsonb)`

// A watched relay runs in the test's own process: there it can look at the catalog every
// few milliseconds.
type watched struct {
	db    *pgtest.DB
	kafka *kafkatest.Cluster
	topic string
	cfg   relay.Config
	log   rig.Log
	ended chan error
	stop  context.CancelFunc
	rows  int
}

// watch starts a relay of table outbox, made by ddl. The topic is the row's aggregate type.
func watch(t *testing.T, srv *pgserver.Server, cluster *kafkatest.Cluster, ddl string) *watched {
	t.Helper()
	return watchDatabase(t, pgtest.DatabaseOn(t, srv), cluster, ddl)
}

func watchDatabase(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster, ddl string) *watched {
	t.Helper()
	db.Exec(t, ddl)
	w := &watched{db: db, kafka: cluster, topic: cluster.Topic(t, 1, nil), cfg: watchedConfig(t, db, db.Name, cluster)}
	w.cfg.Route.Topic = "${route}"
	return w
}

func watchedConfig(t *testing.T, db *pgtest.DB, slot string, cluster *kafkatest.Cluster) relay.Config {
	t.Helper()
	return relay.Config{
		Name:   slot, // the key of its position, on a broker that others share
		Source: replication.Config{Conn: db.Config(t), Publication: rig.Publication, Slot: slot, MessagePrefix: catalog.MessagePrefix},
		Route:  encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()},
		Sink:   kafka.Config{Brokers: cluster.Addrs},
		Create: relay.CreateAll, Tables: []string{"outbox"},
		WatchInterval: 100 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
	}
}

// watchRig is the rig's relay in the test's own process.
func watchRig(t *testing.T, r *rig.Rig) *watched {
	t.Helper()
	w := &watched{db: r.DB, topic: r.Topic, cfg: watchedConfig(t, r.DB, r.Slot, r.Kafka)}
	w.cfg.Route.Topic = r.Topic
	return w
}

// run starts the relay and waits until it streams.
func (w *watched) run(t *testing.T) *watched {
	t.Helper()
	w.start(t)
	w.logged(t, "msg=streaming")
	return w
}

func (w *watched) start(t *testing.T) {
	t.Helper()
	c, err := relay.New(w.cfg, slog.New(slog.NewTextHandler(&w.log, nil)))
	rig.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.ended <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
}

func (w *watched) logged(t *testing.T, text string) {
	t.Helper()
	wait.For(t, "the log to say "+text, func() bool { // a slot waits for every transaction of a server that others use
		ended := len(w.ended) > 0
		logged := strings.Contains(w.log.String(), text)
		if ended && !logged {
			t.Fatalf("the relay has ended without logging %q", text)
		}
		return logged
	})
}

// exec runs statements one by one.
func (w *watched) exec(t *testing.T, sql string) {
	t.Helper()
	for statement := range strings.SplitSeq(sql, "; ") { // a semicolon without a space is within a transaction
		w.db.Exec(t, strings.ReplaceAll(statement, "TOPIC", w.topic))
	}
}

// delivers inserts a row into the table and waits for its record.
func (w *watched) delivers(t *testing.T, table string) {
	t.Helper()
	w.rows++
	w.exec(t, fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload) VALUES (%d, 'TOPIC', 'k', 'T', '{}')`, table, w.rows))
	w.kafka.ReadN(t, w.rows, w.topic)
}

// fails waits for the relay's end and demands the exit code, and that the error says all of
// says.
func (w *watched) fails(t *testing.T, code int, says ...string) {
	t.Helper()
	err := wait.Receive(t, "the relay to end", w.ended)
	if got := fault.ExitCode(err); got != code {
		t.Errorf("exit code %d for %v, want %d", got, err, code)
	}
	for _, want := range says {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
}

// What ends delivery ends the relay, although nothing of it comes through the stream.
func TestWatch(t *testing.T) {
	t.Parallel()
	const (
		create = `CREATE TABLE outbox ` + outboxColumns
		row    = `INSERT INTO outbox VALUES (100, 'TOPIC', 'k', 'T', '{}')`
		add    = `ALTER PUBLICATION ` + rig.Publication + ` ADD TABLE `
	)
	for name, tc := range map[string]struct {
		before string // further DDL
		change string
		since  int  // major version
		stream bool // the stream tells it by itself
		always bool // not only in a full run: one case for each way to notice
		says   []string
	}{
		"publication dropped": {always: true, change: `DROP PUBLICATION ` + rig.Publication, says: []string{rig.Publication, "setup", "correct at 0/"}},
		"gap without publication": {
			change: `DROP PUBLICATION ` + rig.Publication + `; ` + row + `; CREATE PUBLICATION ` + rig.Publication + ` FOR TABLE outbox`,
			stream: true, always: true, says: []string{rig.Publication},
		},
		"table removed":       {change: `ALTER PUBLICATION ` + rig.Publication + ` DROP TABLE outbox`, says: []string{rig.Publication, "ADD TABLE", "correct at 0/"}},
		"removed and added":   {change: `ALTER PUBLICATION ` + rig.Publication + ` DROP TABLE outbox; ` + add + `outbox`, says: []string{rig.Publication, "0/"}},
		"publishes updates":   {change: `ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'update')`, says: []string{"publish = 'insert'", "correct at 0/"}},
		"altered, restored":   {always: true, change: `ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'delete');ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'insert')`, says: []string{"altered and restored", "correct at 0/"}},
		"dropped, re-created": {change: `DROP PUBLICATION ` + rig.Publication + `;CREATE PUBLICATION ` + rig.Publication + ` FOR TABLE outbox`, says: []string{"dropped and re-created", "correct at 0/"}},
		"table recreated":     {before: add + `other`, change: `DROP TABLE outbox;` + create, says: []string{`"public"."outbox"`, "re-created", "ADD TABLE"}},
		"recreated and added": {before: add + `other`, change: `DROP TABLE outbox;` + create + `;` + add + `outbox`, says: []string{"public.outbox", "0/"}},
		"required column":     {always: true, change: `ALTER TABLE outbox DROP COLUMN aggregateid`, says: []string{"public.outbox", "aggregateid", "outbox.columns.key"}},
		"column list":         {since: 15, change: `ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox (id, aggregatetype, aggregateid, type)`, says: []string{"public.outbox", "payload"}},
		"row filter":          {since: 15, change: `ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox WHERE (id > 5)`, says: []string{"public.outbox", "row filter", "correct at 0/"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.always {
				need.FullRun(t, "internal/catalog tests what is found always")
			}
			pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
				if srv.Install().Major < tc.since {
					return
				}
				t.Parallel()
				w := watch(t, srv, kafkatest.Broker(t), create+`; CREATE TABLE other (LIKE outbox)`)
				if tc.stream {
					w.cfg.WatchInterval = time.Hour
				}
				if tc.before != "" {
					w.exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)
					w.exec(t, tc.before)
					w.db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, w.cfg.Source.Slot)
				}
				w.run(t).delivers(t, "outbox")
				w.exec(t, tc.change)
				w.fails(t, exit.NoDelivery, tc.says...)
			})
		})
	}
}

// What loses nothing is warned of once, and the relay goes on.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+strings.Replace(outboxColumns, "PRIMARY KEY", "", 1)+` PARTITION BY RANGE (id);
			CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (0) TO (3);
			CREATE TABLE p2 PARTITION OF outbox FOR VALUES FROM (3) TO (4)`).run(t)
		table := "outbox"
		for _, step := range []struct{ change, says string }{
			{change: `ALTER TABLE outbox ADD COLUMN tenant text`},
			{`ALTER TABLE outbox ALTER COLUMN payload TYPE json`, `column \"payload\" is now json and was jsonb`},
			{change: `ALTER TABLE outbox DETACH PARTITION p1`},
			{change: `CREATE TABLE p3 (LIKE outbox); ALTER TABLE outbox ATTACH PARTITION p3 FOR VALUES FROM (4) TO (1000)`},
			{change: `DROP TABLE p2`},
			{`ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'insert, truncate')`, "now publishes DELETEs or TRUNCATEs"},
			{`CREATE TABLE other (LIKE outbox); ALTER PUBLICATION ` + rig.Publication + ` ADD TABLE other`, "public.other"},
			{`ALTER TABLE outbox RENAME TO events`, "renamed from public.outbox"},
		} {
			w.exec(t, step.change)
			if strings.HasSuffix(step.change, "TO events") {
				table = "events"
			}
			if step.says != "" {
				w.logged(t, step.says)
			}
			w.delivers(t, table)
		}
		w.stop()
		w.fails(t, exit.OK)
		if n, want := strings.Count(w.log.String(), `msg="catalog change"`), 3; n != want {
			t.Errorf("%d warnings, want %d:\n%s", n, want, w.log.String())
		}
	})
}

// A slot that is about to be lost by size is warned of in time, with figures, and its loss
// ends the relay although the sink is down.
func TestSlotLostBySize(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it fills the WAL")
	eachServer(t, map[string]string{"max_slot_wal_keep_size": "64MB"}, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns).run(t)
		w.delivers(t, "outbox")
		w.exec(t, `INSERT INTO outbox VALUES (100, 'no-such-topic', 'k', 'T', '{}')`) // never acknowledged
		<-time.After(10 * time.Second)                                                // a rate is measured over so long at least
		fill := func() { w.exec(t, `SELECT pg_switch_wal(); SELECT txid_current()`) }
		for _, state := range []string{"more WAL, Postgres may invalidate the slot (max_slot_wal_keep_size is 64 MB), in about ", "Postgres may invalidate the slot at the next checkpoint"} {
			wait.For(t, "the warning: "+state, func() bool {
				fill()
				<-time.After(5 * w.cfg.WatchInterval)
				return strings.Contains(w.log.String(), state)
			})
		}
		if !strings.Contains(w.log.String(), "the broker does not acknowledge its rows") {
			t.Error("the reason is not told")
		}
		wait.For(t, "the slot to be lost", func() bool {
			fill()
			w.exec(t, `CHECKPOINT`)
			return pgtest.QueryRow[string](t, w.db, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, w.cfg.Source.Slot) == "lost"
		})
		w.fails(t, exit.SlotLost, w.cfg.Source.Slot, "invalidated", "from 0/", "outbox-cdc setup")
	})
}

// A slot that was lost while nothing ran is refused with the reason; that it can be lost
// like that was told before.
func TestSlotLostByIdleness(t *testing.T) {
	t.Parallel()
	eachServer(t, map[string]string{"idle_replication_slot_timeout": "1s"}, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns).run(t)
		w.logged(t, "idle_replication_slot_timeout is 1s")
		w.delivers(t, "outbox")
		w.stop()
		w.fails(t, exit.OK)
		wait.For(t, "the slot to be lost", func() bool {
			w.exec(t, `CHECKPOINT`)
			return pgtest.QueryRow[string](t, w.db, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, w.cfg.Source.Slot) == "lost"
		})
		w.start(t)
		w.fails(t, exit.SlotLost, w.cfg.Source.Slot, "idle_timeout", "from 0/")
	})
}

// eachServer runs f on a server of its own of every version that knows the settings.
func eachServer(t *testing.T, settings map[string]string, f func(t *testing.T, srv *pgserver.Server)) {
	t.Helper()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		for name := range settings {
			known := &pgtest.DB{DSN: shared.DSN("postgres")}
			if !pgtest.QueryRow[bool](t, known, `SELECT EXISTS (SELECT FROM pg_settings WHERE name = $1)`, name) {
				return
			}
		}
		t.Parallel()
		f(t, pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: settings}))
	})
}

// A role without any right writes what looks like the relay's own messages. The relay delivers, its position
// record has only snapshots that it has taken itself, and it starts again.
func TestForgedSnapshots(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a snapshot and delivers after each forgery")
	r := rig.New(t)
	process := r.Run(t)
	nobody := "nobody_" + r.DB.Name
	r.DB.Exec(t, "CREATE ROLE "+nobody+" LOGIN")
	hostile, err := pgx.Connect(t.Context(), strings.Replace(r.DB.DSN, "//postgres@", "//"+nobody+"@", 1))
	rig.Must(t, err)
	defer func() { _ = hostile.Close(context.WithoutCancel(t.Context())) }()
	for _, content := range []string{
		"18446744073709551614:18446744073709551615:", "1:1:') OR true --", strings.Repeat("7", 1_200_000), "",
	} {
		for _, transactional := range []bool{true, false} {
			_, err := hostile.Exec(t.Context(), `SELECT pg_logical_emit_message($1, $2, $3)`, transactional, catalog.MessagePrefix, r.Slot+"|"+content)
			rig.Must(t, err)
		}
		r.Deliver(t, 100)
	}
	r.AwaitSnapshotOfAll(t)
	for _, s := range r.Recorded(t).Snapshots {
		if strings.HasPrefix(s.Text, "18446744073709551614") {
			t.Errorf("a forged snapshot is recorded: %s", s.Text)
		}
	}
	process.Terminate(t)
	r.GoesOn(t)
	r.Settle(t, 0)
}
