package preset

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// OIDs of Postgres' types.
const (
	oidText, oidVarchar, oidTimestamp, oidTimestamptz, oidUUID, oidInt4 = 25, 1043, 1114, 1184, 2950, 23
)

const id = "0b6f4f1e-7d0f-4f5c-8e57-2f5d3a5b8c11"

// A row of the library's own table becomes a record.
func TestRecords(t *testing.T) {
	const context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, tc := range map[string]struct {
		table  []column
		record string
	}{
		"quarkus": {
			table: []column{
				{"id", oidUUID, id},
				{"aggregatetype", oidVarchar, "Order"},
				{"aggregateid", oidVarchar, "7"},
				{"type", oidVarchar, "OrderPlaced"},
				{"timestamp", oidTimestamp, "2026-03-01 11:30:00"},
				{"payload", oidVarchar, `{"total": 3}`},
				{"tracingspancontext", oidVarchar, "#comment\ntraceparent=" + context + "\n"},
			},
			record: "outbox.event.Order 7={\"total\": 3} id=" + id + " eventType=OrderPlaced traceparent=" + context + " at 1970-01-01T00:00:00Z",
		},
		"spring-modulith": {
			table: []column{
				{"id", oidUUID, id},
				{"listener_id", oidText, "shop.Mailer.on(shop.Order$Placed)"},
				{"event_type", oidText, "shop.Order$Placed"},
				{"serialized_event", oidText, `{"order":7}`},
				{"publication_date", oidTimestamptz, "2026-03-01 11:30:00+00"},
				{"completion_date", oidTimestamptz, ""},
				{"status", oidText, ""},
				{"completion_attempts", oidInt4, "1"},
				{"last_resubmission_date", oidTimestamptz, ""},
			},
			record: "spring-modulith.events " + id + "={\"order\":7} id=" + id + " eventType=shop.Order$Placed listenerId=shop.Mailer.on(shop.Order$Placed) at 2026-03-01T11:30:00Z",
		},
	} {
		text, err := Config(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Sources{File: name + ".yaml", Content: text, Environ: []string{
			"OUTBOX_CDC_SOURCE_DSN=host=localhost dbname=app", "OUTBOX_CDC_SINK_KAFKA_BROKERS=localhost:9092",
		}})
		if err != nil {
			t.Fatal(err)
		}
		relay, err := cfg.Relay()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.record, record(t, relay.Route, tc.table)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each preset has a test above, and a library that cannot be mapped has a reason.
func TestNames(t *testing.T) {
	if diff := cmp.Diff([]string{"quarkus", "spring-modulith"}, Names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"masstransit": "DestinationAddress", "quarkuss": "did you mean quarkus?", "x": "there are quarkus, spring-modulith"} {
		if _, err := Config(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// A column is a column of a row, with its text; empty is NULL.
type column struct {
	name string
	oid  uint32
	text string
}

// record returns the record of a row as text.
func record(t *testing.T, cfg encode.Config, table []column) string {
	t.Helper()
	rel := &decoder.Relation{Namespace: "public", Name: "t", ReplicaIdentity: 'd'}
	insert := &decoder.Insert{Relation: rel}
	for _, c := range table {
		rel.Columns = append(rel.Columns, decoder.Column{Name: c.name, TypeOID: c.oid, TypeModifier: -1})
		value := decoder.Value{Kind: decoder.Text, Data: []byte(c.text)}
		if c.text == "" {
			value = decoder.Value{Kind: decoder.Null}
		}
		insert.Row = append(insert.Row, value)
	}
	router, err := encode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var rec sink.Record
	if err := router.Route(encode.Tx{Timestamp: time.Unix(0, 0)}, 0, insert, &rec); err != nil {
		t.Fatal(err)
	}
	out := rec.Topic + " " + string(rec.Key) + "=" + string(rec.Value)
	for _, h := range rec.Headers {
		out += " " + h.Key + "=" + string(h.Value)
	}
	return out + " at " + rec.Timestamp.UTC().Format(time.RFC3339Nano)
}
