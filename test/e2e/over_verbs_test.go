package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/internal/audit"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A readable is a broker that can be read back. The destination orders rejects a record of 4 kB.
type readable struct {
	config    string // the section sink
	badRoute  string // no destination
	truncates bool   // a dead letter is subject to the same limit
	corrected string // as config, without the limit
	correct   func() // removes the limit from the broker

	stored func() []storedEvent // what orders has
	remove func(e *storedEvent) // from orders
}

// A storedEvent is a record of the destination.
type storedEvent struct {
	id, replayed string
	number       uint64 // of JetStream
	entry        string // of Redis
}

// verbsOver runs each verb that reads the broker back, over b.
func verbsOver(t *testing.T, b *readable) {
	t.Helper()
	const dead = "outbox.dead-letter"
	r := rig.NewOver(t, rig.Database(t), rig.Broker{Topic: "orders", Collect: func(*testing.T, func(rig.Received)) rig.CatchUp { return nil }})
	configure := func(topic, sink string) {
		r.Config = rig.WriteConfigOver(t, r.DB.DSN, r.Slot, topic, sink+"\non_bad_record: dead-letter\ndead_letter_topic: "+dead)
	}
	configure("${route}", b.config)
	m := &deadLetterRig{Rig: r, dead: dead}
	process := r.Run(t)
	process.Terminate(t)

	conn := r.Connect(t)
	insert := func(route, payload string) string {
		return rig.Ask[string](t, conn, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), $1, 'k', 'T', $2::jsonb) RETURNING id::text`, route, payload)
	}
	payload := `{"big": "` + strings.Repeat("x", 4000) + `"}`
	first := insert("orders", `{"n": 1}`)
	for _, row := range runTail(t, r, 1) {
		if row.Topic != "orders" || row.Key != "k" || row.Value != `{"n": 1}` {
			t.Errorf("tail: %+v", row)
		}
	}
	large, lost, last := insert("orders", payload), insert(b.badRoute, `{"n": 2}`), insert("orders", `{"n": 3}`)
	process = r.Run(t)
	r.Confirmed(t)
	var s statusOutput
	wait.For(t, "the relay to have counted the records", func() bool {
		s = runStatus(t, r, "--admin", process.AdminAt(t))
		return s.Relay.Status != nil && s.Relay.Status.Totals.Records >= 2
	})
	if !s.Healthy || s.Relay.Status.State != "streaming" {
		t.Errorf("status: %+v", s)
	}
	process.Terminate(t)
	b.has(t, first, last)

	deadLetters := m.deadLetters(t)
	slices.SortFunc(deadLetters, func(a, b deadLetterLine) int { return strings.Compare(b.Topic, a.Topic) }) // in either order
	if len(deadLetters) != 2 || deadLetters[0].ID != large || deadLetters[0].Topic != "orders" || deadLetters[0].Key != "k" || deadLetters[0].Slot != r.Slot || deadLetters[1].ID != lost {
		t.Fatalf("dead letters: %+v", deadLetters)
	}
	place := func(l deadLetterLine) string { return fmt.Sprintf("%d:%d", l.Partition, l.Offset) }
	m.demandOutput(t, 0, "id: "+large, "show", place(deadLetters[0]))
	if out := m.demandOutput(t, 0, "", "show", place(deadLetters[1]), "--raw"); out != `{"n": 2}` {
		t.Errorf("show --raw: %s", out)
	}
	audited := func(code int, want audit.Topic) {
		t.Helper()
		report := runAudit(t, r, code, "--assume-confirmed")
		i := slices.IndexFunc(report.Topics, func(topic audit.Topic) bool { return topic.Name == "orders" })
		if i < 0 {
			t.Errorf("audit: %+v", report)
			return
		}
		if want.Name = "orders"; report.Topics[i] != want {
			t.Errorf("audit: %+v, want %+v\n%+v", report.Topics[i], want, report.Findings)
		}
	}
	audited(0, audit.Topic{Rows: 3, Records: 2, DeadLetters: 1, Unsent: 1})

	m.demandOutput(t, exit.BadRecord, "0 resent, 2 rejected", "resend", "--all")
	if b.correct != nil {
		b.correct()
	}
	configure("orders", b.corrected)
	if b.truncates {
		m.demandOutput(t, exit.BadRecord, "1 resent, 1 rejected", "resend", "--all")
		runReplay(t, r, 0, "1 of 1 row ", "--ids", large)
		b.has(t, first, last, lost, large)
	} else {
		m.demandOutput(t, 0, "2 resent, 0 rejected", "resend", "--all")
		b.has(t, first, last, lost, large) // as the dead letters are
	}
	audited(0, audit.Topic{Rows: 4, Records: 4, DeadLetters: 2, Resent: 2})

	b.remove(&b.stored()[1]) // not the first one, which retention may have removed
	audited(1, audit.Topic{Rows: 4, Records: 3, Missing: 1, DeadLetters: 2, Resent: 2})
	runReplay(t, r, 0, "1 of 1 row ", "--ids", last)
	audited(0, audit.Topic{Rows: 4, Records: 4, DeadLetters: 2, Resent: 3})
	if again := b.stored()[3]; again.id != last || again.replayed != "true" {
		t.Errorf("replayed: %+v", again)
	}
	if need.Full() { // it waits for a snapshot; otherwise TestAuditLeavesOutUnconfirmedRows tests the same over Kafka
		auditOfAStoppedRelay(t, r, insert)
	}
}

// auditOfAStoppedRelay: the position record says which rows a relay has delivered that no longer runs.
func auditOfAStoppedRelay(t *testing.T, r *rig.Rig, insert func(route, payload string) string) {
	t.Helper()
	last := func(code int) (*audit.Report, int) {
		t.Helper()
		report := runAudit(t, r, code)
		unconfirmed := 0
		for i := range report.Topics {
			unconfirmed += report.Topics[i].Unconfirmed
		}
		return report, unconfirmed
	}
	process := r.Run(t)
	for range 30 { // until a snapshot is recorded, which the relay does every second
		insert("orders", `{"n": 4}`)
		<-time.After(100 * time.Millisecond)
	}
	r.Confirmed(t)
	process.Terminate(t)
	const behind = 3
	for range behind {
		insert("orders", `{"n": 5}`)
	}
	if report, n := last(0); report.Confirmed != audit.ByRecord || n != behind {
		t.Errorf("confirmed by %s, %d rows are not confirmed: %+v", report.Confirmed, n, report)
	}
	config, err := os.ReadFile(r.Config)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(r.Config, append(config, "\nposition_topic: other\n"...), 0o600)) // which does not exist
	for range 2 {
		if report, n := last(1); report.Confirmed != audit.Unknown || n != behind {
			t.Errorf("confirmed by %s, %d rows are not confirmed: %+v", report.Confirmed, n, report)
		}
	}
}

// has compares the ids of the stored events, in their order.
func (b *readable) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, e := range b.stored() {
		got = append(got, e.id)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the destination has %v, want %v", got, want)
	}
}

func TestVerbsOverJetStream(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "every verb over another broker")
	s := natstest.Start(t)
	limited := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}, MaxMsgSize: 2000}
	s.Stream(t, limited)
	s.Stream(t, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"outbox.dead-letter"}})
	js := s.JetStream(t)
	config := fmt.Sprintf("sink: {jetstream: {servers: [%q]}}", s.Addrs[0])
	verbsOver(t, &readable{
		config: config, corrected: config, badRoute: "no such subject",
		correct: func() {
			limited.MaxMsgSize = -1
			_, err := js.UpdateStream(natstest.Context(t), limited)
			rig.Must(t, err)
		},
		stored: func() (all []storedEvent) {
			for _, m := range s.ReadAll(t, "ORDERS") {
				all = append(all, storedEvent{id: m.Header.Get("id"), replayed: m.Header.Get("replayed"), number: m.Sequence})
			}
			return all
		},
		remove: func(e *storedEvent) {
			stream, err := js.Stream(natstest.Context(t), "ORDERS")
			rig.Must(t, err)
			rig.Must(t, stream.DeleteMsg(natstest.Context(t), e.number))
		},
	})
}

// With Redis, the limit applies to dead letters too. So the dead letter of a row that is too large has what identifies the row,
// and replay sends the row.
func TestVerbsOverRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
	client := server.Admin()
	config := func(more string) string {
		return fmt.Sprintf("sink: {redis_streams: {addresses: [%q]%s}}", server.Addr(), more)
	}
	verbsOver(t, &readable{
		config: config(", max_entry_bytes: 2000"), corrected: config(""), truncates: true, badRoute: "",
		stored: func() (all []storedEvent) {
			entries, err := client.XRange(t.Context(), "orders", "-", "+").Result()
			rig.Must(t, err)
			for _, e := range entries {
				id, _ := e.Values["id"].(string)
				replayed, _ := e.Values["replayed"].(string)
				all = append(all, storedEvent{id: id, replayed: replayed, entry: e.ID})
			}
			return all
		},
		remove: func(e *storedEvent) { rig.Must(t, client.XDel(t.Context(), "orders", e.entry).Err()) },
	})
}

// Commands that read the broker back say that this one cannot be read, and what to do instead.
func TestVerbsOverBrokersThatCannotBeRead(t *testing.T) {
	need.FullRun(t, "TestRelayOverJetStream runs always")
	t.Parallel()
	db := pgtest.Database(t)
	rig.Migrate(t, db.DSN)
	db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', 'k', 'T')`)
	for name, c := range map[string]struct{ sink, why string }{
		"RabbitMQ": {"rabbitmq: {servers: [127.0.0.1:1], user: guest, password: guest}", "records cannot be read back from RabbitMQ"},
		"Webhook":  {`webhook: {url: "http://127.0.0.1:1/"}`, "records cannot be read back from webhooks"},
		"SQS":      {"sqs: {region: eu-central-1}", "records cannot be read back from Amazon SQS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := rig.WriteConfigOver(t, db.DSN, "unused", "orders", "sink: {"+c.sink+"}\non_bad_record: dead-letter\ndead_letter_topic: dead")
			for verb, next := range map[string]string{
				"dead-letter list": "read the dead letters with the tools of the broker, and resend their rows by outbox-cdc replay -c " + cfg + " (docs/sinks.md)",
				"audit":            "audit needs a broker that can be read back (docs/sinks.md)",
			} {
				out, code := rig.Command(t, append(strings.Fields(verb), "-c", cfg)...)
				if code != exit.Usage || !strings.Contains(out, c.why) || !strings.Contains(out, next) {
					t.Errorf("%s: exit code %d\n%s", verb, code, out)
				}
			}
		})
	}
}
