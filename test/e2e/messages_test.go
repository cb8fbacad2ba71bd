package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/prune"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// emit returns a statement that writes a message whose payload contains id.
func (w *watched) emit(t *testing.T, transactional, prefix, id string) string {
	t.Helper()
	return `SELECT pg_logical_emit_message(` + transactional + `, '` + prefix + `', '{"id": "` + id + `", "aggregatetype": "` + w.topic +
		`", "aggregateid": "k", "type": "T", "payload": {"id": "` + id + `"}}')`
}

// Without an outbox table, logical messages are the events. The relay delivers transactional messages of
// committed transactions in order, and every non-transactional message. It delivers each message once,
// also across a restart, and confirms the slot up to its end.
func TestMessages(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE unrelated (id int)`)
		w.cfg.Tables, w.cfg.Messages, w.cfg.Positions = nil, []string{"outbox", "billing"}, position.Place{Topic: position.DefaultTopic}
		w.run(t)
		conn := w.db.Conn(t)
		exec := func(statements ...string) {
			t.Helper()
			for _, sql := range statements {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
		}
		exec("BEGIN", w.emit(t, "true", "outbox", "1"), "INSERT INTO unrelated VALUES (1)", w.emit(t, "true", "other", "no"),
			w.emit(t, "true", "billing", "2"), "COMMIT")
		exec("BEGIN", w.emit(t, "true", "outbox", "never"), "ROLLBACK")
		exec("BEGIN", w.emit(t, "false", "outbox", "3"), w.emit(t, "true", "outbox", "never"), w.emit(t, "false", "outboxes", "no"), "ROLLBACK")
		exec(w.emit(t, "true", "outbox", "4"), w.emit(t, "false", "outbox", "5"))
		w.kafka.ReadN(t, 5, w.topic)
		rig.AwaitConfirmed(t, conn, w.cfg.Source.Slot)
		w.stop()
		w.fails(t, exit.OK)

		exec(w.emit(t, "false", "outbox", "6"))
		w.run(t)
		exec(w.emit(t, "true", "outbox", "7"))
		w.kafka.ReadN(t, 7, w.topic)
		rig.AwaitConfirmed(t, conn, w.cfg.Source.Slot)
		w.stop()
		w.fails(t, exit.OK)
		if got, want := ids(w.kafka.ReadAll(t, w.topic)), strings.Fields("1 2 3 4 5 6 7"); !slices.Equal(got, want) {
			t.Errorf("ids %q, want %q", got, want)
		}
		if n := pgtest.QueryRow[int](t, w.db, "SELECT count(*)::int FROM pg_publication_rel"); n != 0 {
			t.Errorf("the publication has %d tables", n)
		}
	})
}

// If Kafka has not acknowledged the record of a non-transactional message, the relay does not confirm the
// message. It resends the message after a crash.
func TestMessageIsNotConfirmedEarly(t *testing.T) {
	t.Parallel()
	w := watch(t, pgtest.Server(t), kafkatest.Broker(t), `CREATE TABLE unrelated (id int)`)
	w.cfg.Tables, w.cfg.Messages = nil, []string{"outbox"}
	w.run(t)
	w.db.Exec(t, w.emit(t, "false", "outbox", "1"))
	w.kafka.ReadN(t, 1, w.topic)
	rig.AwaitConfirmed(t, w.db.Conn(t), w.cfg.Source.Slot)
	undeliverable := pgtest.QueryRow[string](t, w.db, "SELECT pg_logical_emit_message::text FROM ("+strings.Replace(w.emit(t, "false", "outbox", "2"), w.topic, "no topic", 1)+") message")
	w.db.Exec(t, w.emit(t, "true", "outbox", "3"))
	w.fails(t, exit.BadRecord, "the topic name contains")
	if !pgtest.QueryRow[bool](t, w.db, "SELECT confirmed_flush_lsn < $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", undeliverable, w.cfg.Source.Slot) {
		t.Error("what was not delivered is confirmed")
	}
	// The position in the error skips only that message.
	passed := pgtest.QueryRow[string](t, w.db, `SELECT (lsn)::text FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2, 'messages', 'true') LIMIT 1`, w.cfg.Source.Slot, rig.Publication)
	w.db.Exec(t, `SELECT pg_replication_slot_advance($1, $2::pg_lsn)`, w.cfg.Source.Slot, passed)
	w.run(t)
	w.kafka.ReadN(t, 2, w.topic)
	if got, want := ids(w.kafka.ReadAll(t, w.topic)), []string{"1", "3"}; !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
}

// Every relay of the database receives prune's marker message. A relay that delivers messages of all
// prefixes ignores the marker, also the one of an earlier version. Prune waits for its own relay only.
func TestPruneBesideMessagesOfAnyPrefix(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/prune has the quick tests")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		broker := kafkatest.Broker(t)
		table := watch(t, srv, broker, "CREATE TABLE outbox "+outboxColumns).run(t)
		all := &watched{db: table.db, kafka: broker, topic: broker.Topic(t, 1, nil), cfg: watchedConfig(t, table.db, table.db.Name+"_all", broker)}
		all.cfg.Route.Topic, all.cfg.Source.Publication = "${route}", "all_messages"
		all.cfg.Tables, all.cfg.Messages, all.cfg.Positions = nil, []string{replication.AnyPrefix}, position.Place{Topic: position.DefaultTopic}
		all.run(t)

		table.exec(t, `INSERT INTO outbox VALUES (1, 'TOPIC', 'k', 'T', '{"id": 1}')`)
		report, err := prune.Run(t.Context(), prune.Config{
			Source: table.db.Conn(t).Config(), Tables: []string{"outbox"}, Publication: rig.Publication, Slots: []string{table.cfg.Source.Slot}, Wait: 20 * time.Second,
		})
		if err != nil || report.Tables[0].Deleted != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		table.db.Exec(t, all.emit(t, "true", "orders", "1"))
		all.kafka.ReadN(t, 1, all.topic)
		rig.AwaitConfirmed(t, table.db.Conn(t), all.cfg.Source.Slot)
		for _, w := range []*watched{all, table} {
			w.stop()
			w.fails(t, exit.OK)
		}
	})
}
