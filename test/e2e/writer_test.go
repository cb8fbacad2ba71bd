package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// What package outbox writes arrives in the same record as a row and as a message, but for the
// order of the headers.
func TestWriter(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		for _, kind := range []outbox.PayloadType{outbox.JSON, outbox.Text} {
			config := outbox.Config{PayloadType: kind, Columns: outbox.Columns{Partition: "part"}}
			w, err := outbox.NewWriter(config)
			rig.Must(t, err)
			payloads := []any{
				[]byte(`"a \"text\""`), `{"a": "string"}`, 4.25, true, nil, []byte(`null`), []byte(`{"b":1.0, "a":"\u00e9☃"}`), []byte(`[ 1,2 ]`), struct{ Cents int }{4200},
			}
			if kind == outbox.Text {
				payloads = append(payloads, `a "text"`, []byte("<a/>"), []byte(``), []byte(`"`))
			}
			cluster := kafkatest.Broker(t)
			fromRows, fromMessages := cluster.Topic(t, 3, nil), cluster.Topic(t, 3, nil)
			events := func(topic string) []outbox.Event {
				var all []outbox.Event
				for i, payload := range payloads {
					all = append(all, outbox.Event{
						ID: uuid.UUID{byte(i + 1)}, AggregateType: topic, AggregateID: "it's \\ \"☃\" " + string(rune('a'+i)), Type: "T", Payload: payload,
						Tombstone: payload == nil,
					})
				}
				all[1].Headers = map[string]string{"a": "<é>\x01\"", "traceparent": ""}
				all[2].ContentType, all[2].SchemaVersion, all[2].CloudEvent = "text/plain", 3, &outbox.CloudEvent{Source: "/orders", Subject: "☃"}
				all[3].Partition = new(int32(2))
				return all
			}
			for topic, write := range map[string]func(context.Context, pgx.Tx, ...outbox.Event) error{fromRows: w.Write, fromMessages: w.WriteMessage} {
				process := watchDatabase(t, pgtest.DatabaseOn(t, srv), cluster, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL,
					aggregateid text NOT NULL, type text, payload `+string(kind)+`, headers json, part integer)`)
				process.cfg.Route.Place = []encode.Placement{{Column: "part", To: encode.ToPartition}}
				process.cfg.Route.OnMissingColumn = encode.MissingIgnore
				if topic == fromMessages {
					process.cfg.Tables, process.cfg.Messages = nil, []string{"outbox"}
				}
				process.run(t)
				conn := process.db.Conn(t)
				all := events(topic)
				for _, batch := range [][]outbox.Event{all[:1], all[1:]} {
					rig.Must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return write(t.Context(), tx, batch...) }))
				}
				cluster.ReadN(t, len(all), topic)
			}
			rows, messages := plain(cluster.ReadAll(t, fromRows)), plain(cluster.ReadAll(t, fromMessages))
			if diff := cmp.Diff(rows, messages); diff != "" {
				t.Errorf("%s: records (-of rows +of messages):\n%s", kind, diff)
			}
			if len(rows) != len(payloads) {
				t.Errorf("%s: %d records, want %d", kind, len(rows), len(payloads))
			}
		}
	})
}

// Events of one call keep their order: few and so many that they are copied, of changing sizes.
func TestWriterOrder(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "package outbox tests the order always")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, headers jsonb)`)
		w.run(t)
		conn := w.db.Conn(t)
		written := 0
		for _, n := range []int{1, 100, 2000, 499, 500} {
			events := make([]outbox.Event, n)
			for i := range events {
				written++
				events[i] = outbox.Event{
					AggregateType: w.topic, AggregateID: "k", Type: fmt.Sprint(written), Payload: []string{strings.Repeat("x", written*7919%3000)},
					Tombstone: written%5 == 0,
				}
				if events[i].Tombstone {
					events[i].Payload = nil
				}
			}
			rig.Must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return outbox.Write(t.Context(), tx, events...) }))
		}
		for i, r := range w.kafka.ReadN(t, written, w.topic) {
			if got := rig.Header(r, "eventType"); got != fmt.Sprint(i+1) {
				t.Fatalf("record %d is of event %s", i+1, got)
			}
		}
	})
}

// The largest event that is written is delivered: to a topic as a real broker makes it, by a relay
// that adds headers (an initial copy adds no lsn by itself), as jsonb prints it.
func TestWriterLimit(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestWriter runs always")
	r := rig.New(t)
	rig.Must(t, pgx.BeginFunc(t.Context(), r.Connect(t), func(tx pgx.Tx) error {
		for numbers := 333_280; ; numbers-- { // the first is too many
			payload := "[" + strings.Repeat("7,", numbers) + "7]" // to which jsonb adds half as much
			err := outbox.Write(t.Context(), tx, outbox.Event{AggregateType: "a", AggregateID: "1", Type: "T", Payload: []byte(payload)})
			if problem, ok := errors.AsType[*outbox.EventError](err); !ok || !strings.Contains(problem.Reason, "too large") {
				return err
			}
		}
	}))
	rig.Must(t, os.WriteFile(r.Config, fmt.Appendf(nil, "source: {dsn: %q, publication: %s, slot: %s}\n"+
		"outbox: {topic: %s}\nsink: {kafka: {brokers: [%q]}}\nheaders: {static: [source=shop, lsn=FFFFFFFF/FFFFFFFF:1000000]}\n",
		r.DB.DSN, rig.Publication, r.Slot, r.Topic, r.Kafka.Addrs[0]), 0o600))
	process := r.Run(t, "--set", "source.initial_copy=true")
	records := r.Kafka.ReadN(t, 1, r.Topic)
	if size := len(records[0].Value); size < 999_000 || size > 1_000_000 {
		t.Errorf("the largest value has %d bytes", size)
	}
	process.Terminate(t)
}

// plain returns the parts of records that do not depend on when and where they were written, as
// text.
func plain(records []*kgo.Record) []string {
	all := make([]string, len(records))
	for i, r := range records {
		var b strings.Builder
		b.WriteString(string('0'+r.Partition) + " " + string(r.Key) + "\n" + value(r.Value) + "\n")
		headers := make([]string, len(r.Headers))
		for j, h := range r.Headers {
			headers[j] = h.Key + "=" + value(h.Value)
		}
		slices.Sort(headers)
		all[i] = b.String() + strings.Join(headers, "\n")
	}
	return all
}

func value(b []byte) string {
	if b == nil {
		return "no value"
	}
	return "|" + string(b) + "|"
}
