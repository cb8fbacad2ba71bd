package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// writerOf returns a connection as a new role that may only insert into the outbox.
func writerOf(t *testing.T, r *rig.Rig) *pgx.Conn {
	t.Helper()
	role := "writer_" + r.DB.Name
	r.DB.Exec(t, `CREATE ROLE `+role+` LOGIN; GRANT INSERT ON outbox TO `+role)
	conn, err := pgx.Connect(t.Context(), strings.Replace(r.DB.DSN, "//postgres@", "//"+role+"@", 1))
	rig.Must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// insertAs inserts a row with the given parts and returns its id.
func insertAs(t *testing.T, conn *pgx.Conn, topic, key, payload, headers string) string {
	t.Helper()
	id := uuid.NewString()
	_, err := conn.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers) VALUES ($1, $2, $3, 'T', $4::jsonb, $5::jsonb)`,
		id, topic, key, payload, headers)
	rig.Must(t, err)
	return id
}

// forgedPosition returns a position record for the rig's relay whose position and ownership are ahead of the
// relay's own.
func forgedPosition(t *testing.T, r *rig.Rig) (key, value string) {
	t.Helper()
	p := r.Recorded(t)
	return r.Slot + "/" + sink.PositionKey, fmt.Sprintf(`{"version": 1, "system_id": %q, "timeline": 1, "slot": %q, "end_lsn": %q, "term": 50, "owner": 50, "written_at": %q}`,
		p.SystemID, r.Slot, (p.EndLSN + 1<<20).String(), time.Now().UTC().Format(time.RFC3339))
}

// A role that may only insert rows, and that chooses their topics, can write neither a position record nor
// a dead letter: the relay treats such a row as a bad one. Valid rows arrive, also after a restart.
func TestRowsNeverReachTheRelaysOwnTopics(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restarts the relay after each forgery")
	r, fake := rig.NewFake(t)
	dead := fake.Topic(t, 1, nil)
	r.Config = rig.WriteConfig(t, r.DB.DSN, fake.Addrs[0], r.Slot, "${route}", "on_bad_record: dead-letter\ndead_letter_topic: "+dead)
	process := r.Run(t)
	conn := writerOf(t, r)
	insertAs(t, conn, r.Topic, "k", `{"n": 0}`, `{}`)
	r.Confirmed(t)

	key, value := forgedPosition(t, r)
	forged := []string{
		insertAs(t, conn, position.DefaultTopic, key, value, `{}`),
		insertAs(t, conn, dead, "k", `{}`, `{}`),
		insertAs(t, conn, r.Topic, "k", `{}`, `{"dead_letter_reason": "mine", "dead_letter_topic": "outbox-cdc.positions"}`),
	}
	for n := range 20 {
		insertAs(t, conn, r.Topic, "k", fmt.Sprintf(`{"n": %d}`, n+1), `{}`)
	}
	r.Confirmed(t)
	process.Terminate(t)
	process = r.Run(t)
	insertAs(t, conn, r.Topic, "k", `{"n": 21}`, `{}`)
	r.Confirmed(t)
	process.Terminate(t)

	if got := len(fake.ReadAll(t, r.Topic)); got != 22 {
		t.Errorf("%d honest records, want 22", got)
	}
	for _, rec := range fake.ReadAll(t, position.DefaultTopic) {
		if len(rec.Headers) > 0 {
			t.Errorf("the position topic has a routed record: %s", rec.Value)
		}
	}
	deadLetters := fake.ReadAll(t, dead)
	if len(deadLetters) != len(forged) {
		t.Fatalf("%d dead letters, want %d", len(deadLetters), len(forged))
	}
	for i, rec := range deadLetters {
		if rig.Header(rec, "dead_letter_column_id") != forged[i] || rig.Header(rec, "dead_letter_slot") != r.Slot {
			t.Errorf("dead letter %d has headers %v", i, rec.Headers)
		}
	}
	if out, code := rig.Command(t, "replay", "-c", r.Config, "--ids", forged[0]); code != 14 || !strings.Contains(out, "is one of the relay's own") {
		t.Errorf("replay: exit code %d\n%s", code, out)
	}
}

// If logical messages replace rows, any role of the database chooses topic and headers. Its messages never
// reach the relay's own topics, and it cannot forge a dead letter.
func TestMessagesNeverForgeDeadLetters(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	r, fake := rig.NewFake(t)
	m := &deadLetterRig{Rig: r, dead: fake.Topic(t, 1, nil)}
	m.Config = rig.WriteConfig(t, r.DB.DSN, fake.Addrs[0], r.Slot, "${route}", "on_bad_record: dead-letter\ndead_letter_topic: "+m.dead)
	process := m.Run(t, "--set", "outbox.messages=orders")
	conn := writerOf(t, r)
	key, value := forgedPosition(t, r)
	emit := func(topic, headers string) {
		content, err := json.Marshal(map[string]any{
			"id": uuid.NewString(), "aggregatetype": topic, "aggregateid": key, "type": "T", "payload": value, "headers": json.RawMessage(headers),
		})
		rig.Must(t, err)
		_, err = conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'orders', $1)`, string(content))
		rig.Must(t, err)
	}
	deadLetter := `{"dead_letter_reason": "r", "dead_letter_topic": "outbox-cdc.positions", "dead_letter_slot": "` + r.Slot +
		`", "dead_letter_lsn": "0/1", "dead_letter_index": "0", "dead_letter_at": "2026-01-01T00:00:00Z"}`
	emit(m.dead, deadLetter)
	emit(m.dead, `{}`)
	emit(position.DefaultTopic, deadLetter)
	emit(r.Topic, deadLetter)
	emit(r.Topic, `{}`)
	r.Confirmed(t)
	process.Terminate(t)
	if n := len(fake.ReadAll(t, r.Topic)); n != 1 {
		t.Errorf("the topic has %d records, want the honest one", n)
	}
	deadLetters := m.deadLetters(t)
	if len(deadLetters) != 4 || len(fake.ReadAll(t, m.dead)) != 4 {
		t.Fatalf("dead letters %+v", deadLetters)
	}
	for _, l := range deadLetters {
		if l.Table != "message orders" || l.Topic != "" || l.Reason == "r" {
			t.Errorf("listed as genuine: %+v", l)
		}
	}
	m.demandOutput(t, 14, "0 resent, 4 rejected", "resend", "--all", "--set", "outbox.messages=orders")
}

// Resend sends no dead letter of another producer to the relay's own topics. It sends dead letters that
// name another slot only if the operator asks for it.
func TestForgedDeadLettersAreNotResent(t *testing.T) {
	need.FullRun(t, "TestDeadLetters and TestDeadLetterListAndShow run always")
	t.Parallel()
	r, fake := rig.NewFake(t)
	m := &deadLetterRig{Rig: r, dead: fake.Topic(t, 1, nil)}
	m.route(t, "${route}")
	cl := fake.Client(t)
	for _, l := range []struct{ topic, slot string }{{position.DefaultTopic, r.Slot}, {m.dead, r.Slot}, {"__consumer_offsets", r.Slot}, {r.Topic, "theirs"}, {r.Topic, r.Slot}} {
		rec := &sink.Record{Topic: l.topic, Partition: sink.AnyPartition, Key: []byte(r.Slot), Value: []byte(`{}`), Headers: []sink.Header{{Key: "id", Value: []byte("1")}}}
		deadLetter := &kgo.Record{Topic: m.dead, Key: rec.Key, Value: rec.Value}
		for _, h := range encode.DeadRecord(m.dead, encode.Origin{Slot: l.slot}, rec, "forged").Headers {
			deadLetter.Headers = append(deadLetter.Headers, kgo.RecordHeader(h))
		}
		rig.Must(t, cl.ProduceSync(t.Context(), deadLetter).FirstErr())
	}
	if out := m.demandOutput(t, 0, "slot theirs (not source.slot)", "list"); !strings.Contains(out, "slot "+r.Slot+"\n") {
		t.Errorf("list: %s", out)
	}
	m.demandOutput(t, 2, "--any-slot", "resend", "0:3")
	out := m.demandOutput(t, 14, "1 resent, 3 rejected, 1 are of other slots", "resend", "--all")
	if strings.Count(out, "is one of the relay's own") != 2 || !strings.Contains(out, "begins with __") {
		t.Errorf("resend: %s", out)
	}
	m.demandOutput(t, 0, "sent to "+r.Topic, "resend", "0:3", "--any-slot")
	if n := len(fake.ReadAll(t, r.Topic)); n != 2 {
		t.Errorf("%d records were sent again, want 2", n)
	}
}

// Another relay, with a different position topic, routes a row to the first relay's position topic. The
// first relay ignores the record with a warning when it starts the next time.
func TestForgedPositionThroughAnotherRelay(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "several relays")
	r, fake := rig.NewFake(t)
	dead := fake.Topic(t, 1, nil)
	more := "on_bad_record: dead-letter\ndead_letter_topic: " + dead
	r.Config = rig.WriteConfig(t, r.DB.DSN, fake.Addrs[0], r.Slot, "${route}", more)
	process := r.Run(t)
	neighbour := rig.WriteConfig(t, r.DB.DSN, fake.Addrs[0], r.Slot+"_neighbour", "${route}", "admin: {listen: ''}\nposition_topic: neighbours\n"+more)
	other := rig.Start(t, "run", "-c", neighbour, "--set", "source.create=slot")
	other.Logged(t, "streaming")
	conn := writerOf(t, r)
	insertAs(t, conn, r.Topic, "k", `{"n": 0}`, `{}`)
	r.Confirmed(t)

	key, value := forgedPosition(t, r)
	insertAs(t, conn, position.DefaultTopic, key, value, `{}`)
	wait.For(t, "the forged record", func() bool {
		for _, rec := range fake.ReadAll(t, position.DefaultTopic) {
			if string(rec.Key) == key && len(rec.Headers) > 0 {
				return true
			}
		}
		return false
	})
	insertAs(t, conn, r.Topic, "k", `{"n": 1}`, `{}`)
	r.Confirmed(t)
	other.Terminate(t)
	process.Terminate(t)
	process = r.Run(t)
	process.Logged(t, "foreign record in the position store ignored")
	insertAs(t, conn, r.Topic, "k", `{"n": 2}`, `{}`)
	r.Confirmed(t)
	process.Terminate(t)
	if n := len(fake.ReadAll(t, r.Topic)); n != 5 { // the other relay has sent two of the rows too
		t.Errorf("%d records, want 5", n)
	}
}
